use proptest::prelude::*;

use super::*;

fn one(text: &str) -> Result<(String, Data), String> {
    let file = format!("{HEADER}\n[HKLM\\x]\n{text}\n");
    match parse(file.as_bytes()) {
        Ok(sections) => {
            let line = sections[0].values[0].clone();
            Ok((line.name, line.data))
        }
        Err(wrong) => Err(wrong[0].problem.clone()),
    }
}

#[test]
fn values_of_all_types_are_read() {
    let data = |text: &str| one(text).expect("a value").1;
    assert_eq!(data("\"a\"=dword:0000001f"), Data::Dword(31));
    assert_eq!(data("\"a\"=DWORD:1F ; why"), Data::Dword(31));
    assert_eq!(data("\"a\"=\"50\""), Data::Text("50".to_owned()));
    assert_eq!(
        data(r#""a"="say \"hi\" in C:\\dir" ; why"#),
        Data::Text(r#"say "hi" in C:\dir"#.to_owned())
    );
    assert_eq!(data("\"a\"=-"), Data::Delete);
    assert_eq!(data("\"a\"=hex(4):32,00,00,00"), Data::Dword(50));
    assert_eq!(
        data("\"a\"=hex(2):35,00,30,00,00,00"),
        Data::Text("50".to_owned())
    );
    assert_eq!(
        data("\"a\"=hex(7):61,00,00,00,\\\n  62,00,00,00,00,00"),
        Data::Multi(vec!["a".to_owned(), "b".to_owned()])
    );
    assert_eq!(data("\"a\"=hex(7):00,00"), Data::Multi(Vec::new()));
    assert_eq!(data("\"a\"=hex:01,02"), Data::Other(3));
    assert_eq!(one("@=\"x\"").expect("a value").0, "");
    // A backslash at the end of a text does not join lines.
    assert_eq!(data("\"a\"=\"C:\\\\\""), Data::Text("C:\\".to_owned()));
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    for wrong in [
        "\"a\"=dword:123456789",
        "\"a\"=dword:",
        "\"a\"=dword:+1",
        "\"a\"=\"open",
        "\"a\"",
        "a=1",
        "\"a\"=1",
        "\"a\"=hex(7):6",
        "\"a\"=hex(4):01",
        "\"a\"=hex(zz):01",
        "\"a\"=hex:xx",
        "[open",
    ] {
        // One digit is a byte, but one byte is not UTF-16.
        assert!(one(wrong).is_err(), "{wrong}");
    }
    let file = format!("{HEADER}\r\n\r\n[HKLM\\x]\r\n\"a\"=1\r\n\"b\"=dword:1\r\n\"c\"=2\r\n");
    let lines: Vec<usize> = parse(file.as_bytes())
        .expect_err("wrong")
        .iter()
        .map(|w| w.line)
        .collect();
    assert_eq!(lines, [4, 6]);
    for wrong in [&b""[..], b"REGEDIT4\n", b"\xfe\xff\0W", b"\xff\xfeW", b"\x80\x81"] {
        assert_eq!(parse(wrong).expect_err("wrong")[0].line, 1);
    }
    assert!(parse(format!("{HEADER}\n\"a\"=dword:1").as_bytes()).is_err());
    assert!(parse(format!("{HEADER}\n[-HKLM\\x]\n\"a\"=dword:1").as_bytes()).is_err());
}

fn data() -> impl Strategy<Value = Data> {
    prop_oneof![
        any::<u32>().prop_map(Data::Dword),
        "\\PC{0,20}".prop_map(Data::Text),
        any::<String>()
            .prop_filter("no zero", |s| !s.contains('\0'))
            .prop_map(Data::Text),
        prop::collection::vec("[^\0]{1,8}", 0..5).prop_map(Data::Multi),
        Just(Data::Delete),
    ]
}

fn sections() -> impl Strategy<Value = Vec<Section>> {
    let value = ("[^\\p{C}]{0,12}", data());
    let section = (
        "[^-\\[\\]\\p{C}\\p{Z}][^\\[\\]\\p{C}]{0,20}x",
        prop::collection::vec(value, 0..6),
    );
    prop::collection::vec(section, 0..4).prop_map(|all| {
        all.into_iter()
            .map(|(path, values)| Section {
                number: 0,
                path,
                delete: false,
                comments: Vec::new(),
                values: values
                    .into_iter()
                    .map(|(name, data)| Line {
                        number: 0,
                        name,
                        data,
                    })
                    .collect(),
            })
            .collect()
    })
}

fn without_numbers(mut sections: Vec<Section>) -> Vec<Section> {
    for section in &mut sections {
        section.number = 0;
        for line in &mut section.values {
            line.number = 0;
        }
    }
    sections
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(sections in sections(), utf8: bool) {
        let read = parse(&write(&sections, utf8)).map(without_numbers);
        prop_assert_eq!(read, Ok(sections));
    }

    #[test]
    fn bytes_never_panic(bytes: Vec<u8>) {
        let _ = parse(&bytes);
    }

    #[test]
    fn damaged_files_never_panic(
        sections in sections(), utf8: bool, at in any::<prop::sample::Index>(), byte: u8, cut: bool,
    ) {
        let mut bytes = write(&sections, utf8);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if cut {
            bytes.truncate(at);
        }
        let _ = parse(&bytes);
    }

    #[test]
    fn lines_never_panic(lines in prop::collection::vec("[\\[\\]\"=\\\\a-f0-9:(),;@-]{0,20}", 0..8)) {
        let _ = parse(format!("{HEADER}\n{}", lines.join("\n")).as_bytes());
    }
}
