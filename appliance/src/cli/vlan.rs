//! VLAN membership on the command line.

use vnic_control::v1;

use super::Failure;

/// VLAN membership [default: a trunk of all VLANs with native VLAN 1].
#[derive(Debug, Default, clap::Args)]
pub struct VlanArgs {
    /// Untagged frames only, all in this VLAN
    #[arg(long, value_name = "VLAN", conflicts_with_all = ["trunk", "native"])]
    access_vlan: Option<u32>,
    /// Tagged frames of these VLANs (such as 10,20), or all [default: all]
    #[arg(long, value_name = "VLANS")]
    trunk: Option<String>,
    /// VLAN of untagged frames on a trunk [default: 1]
    #[arg(long, value_name = "VLAN")]
    native: Option<u32>,
}

impl VlanArgs {
    /// Message of the options; `None` without an option.
    pub fn message(&self) -> Result<Option<v1::Vlan>, Failure> {
        let mode = if let Some(vlan) = self.access_vlan {
            v1::vlan::Mode::Access(v1::AccessVlan { vlan })
        } else if self.trunk.is_some() || self.native.is_some() {
            let allowed = match self.trunk.as_deref() {
                None | Some("all") => None,
                Some(list) => {
                    let vlans = list
                        .split(',')
                        .map(|v| v.trim().parse())
                        .collect::<Result<Vec<u32>, _>>();
                    Some(v1::VlanSet {
                        vlans: vlans.map_err(|_| {
                            Failure::Usage(format!("--trunk {list}: a list such as 10,20 or all is allowed"))
                        })?,
                    })
                }
            };
            v1::vlan::Mode::Trunk(v1::TrunkVlan {
                native: self.native.unwrap_or(0),
                allowed,
            })
        } else {
            return Ok(None);
        };
        Ok(Some(v1::Vlan { mode: Some(mode) }))
    }
}

/// VLAN membership in words.
pub fn words(vlan: Option<&v1::Vlan>) -> String {
    match vlan.and_then(|v| v.mode.as_ref()) {
        None => String::new(),
        Some(v1::vlan::Mode::Access(access)) => format!("access {}", access.vlan),
        Some(v1::vlan::Mode::Trunk(trunk)) => {
            let allowed = match &trunk.allowed {
                None => "all".to_owned(),
                Some(set) if set.vlans.is_empty() => "none".to_owned(),
                Some(set) => set
                    .vlans
                    .iter()
                    .map(ToString::to_string)
                    .collect::<Vec<_>>()
                    .join(","),
            };
            format!("trunk {allowed}, native {}", trunk.native)
        }
    }
}
