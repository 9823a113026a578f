//! The configuration of the daemon without secrets.

use std::fs;
use std::io::Read as _;
use std::path::Path;

use serde_json::Value;

/// Greatest file in bytes.
const FILE_MAX: u64 = 1 << 20;
/// Parts of keys that have secrets, or say where one is.
const SECRET: [&str; 8] = [
    "key",
    "pass",
    "secret",
    "token",
    "credential",
    "auth",
    "private",
    "psk",
];
/// Key with such a part that is none.
const NO_SECRET: &str = "lacp_key";
/// What is there instead of a secret.
pub const LEFT_OUT: &str = "(left out)";

/// Reads a configuration file as JSON without secrets and without comments. The error does not have what is in the file.
pub fn read(path: &Path) -> Result<String, String> {
    let failed = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    // (A pipe would wait.)
    if !fs::metadata(path).map_err(|e| failed(&e))?.is_file() {
        return Err(failed(&"is no file"));
    }
    let mut text = String::new();
    let file = fs::File::open(path).map_err(|e| failed(&e))?;
    let read = file.take(FILE_MAX + 1).read_to_string(&mut text);
    read.map_err(|e| failed(&e))?;
    if text.len() as u64 > FILE_MAX {
        return Err(failed(&format!("has more than {FILE_MAX} bytes")));
    }
    // (The text of the error has a line of the file.)
    let mut value: Value = toml::from_str(&text).map_err(|_| failed(&"is not TOML"))?;
    strip(&mut value);
    Ok(format!("{value:#}\n"))
}

/// Takes out values of keys that have secrets, and texts that look like keys or certificates.
pub fn strip(value: &mut Value) {
    match value {
        Value::Object(table) => {
            for (key, value) in table {
                let name = key.to_ascii_lowercase();
                if name != NO_SECRET && SECRET.iter().any(|part| name.contains(part)) {
                    *value = LEFT_OUT.into();
                } else {
                    strip(value);
                }
            }
        }
        Value::Array(all) => all.iter_mut().for_each(strip),
        Value::String(text) if text.contains("-----BEGIN") => *value = LEFT_OUT.into(),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_comments_are_left_out_and_the_rest_is_there() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("vnicd.toml");
        let text = "# password: hunter1\n[control.tls]\ncertificate = \"/etc/server.pem\"\nkey = \"/etc/hunter2.key\"\n\
                    [[team]]\nname = \"Team0\"\nlacp_key = 7\n\
                    [unknown]\nPassWord = { a = \"hunter3\" }\napi-token = [\"hunter4\"]\n\
                    note = \"\"\"\n-----BEGIN EC PRIVATE KEY-----\nhunter5\n\"\"\"\n";
        fs::write(&path, text).expect("a file");
        let read = read(&path).expect("JSON");
        assert!(!read.contains("hunter"), "{read}");
        let value: Value = serde_json::from_str(&read).expect("JSON");
        assert_eq!(value["control"]["tls"]["certificate"], "/etc/server.pem");
        assert_eq!(value["control"]["tls"]["key"], LEFT_OUT);
        assert_eq!(value["team"][0]["lacp_key"], 7);
        assert_eq!(value["unknown"]["note"], LEFT_OUT);
    }

    #[test]
    fn what_is_no_configuration_is_not_quoted() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("shadow");
        fs::write(&path, "root:hunter2:19000\n").expect("a file");
        let said = read(&path).expect_err("not TOML");
        assert!(said.ends_with("shadow: is not TOML"), "{said}");
        fs::write(&path, vec![b'#'; 2 << 20]).expect("a file");
        assert!(read(&path).expect_err("long").contains("more than"));
        assert!(read(dir.path()).expect_err("a directory").ends_with("is no file"));
        assert!(read(&dir.path().join("none")).is_err());
    }
}
