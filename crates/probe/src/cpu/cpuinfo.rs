//! `/proc/cpuinfo`: one block of `key : value` lines per logical processor.
//!
//! The second choice everywhere: its keys differ between architectures and kernels. It is the only
//! source for ARM's implementer and part numbers, and for the topology inside sandboxes that offer
//! no `/sys`.

use std::collections::{BTreeMap, BTreeSet};

use kernelwise_types::machine::CpuSignature;

use crate::tree::{ReadError, Tree};

pub(crate) const PATH: &str = "/proc/cpuinfo";

#[derive(Debug)]
pub(crate) struct CpuInfo {
    blocks: Vec<BTreeMap<String, String>>,
}

/// A logical processor's socket, and its core within the socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) cpu: u32,
    pub(crate) package: u32,
    pub(crate) core: u32,
}

impl CpuInfo {
    pub(crate) fn read(tree: &Tree) -> Result<Self, ReadError> {
        let text = tree.text(PATH)?;
        let mut blocks = vec![];
        let mut block = BTreeMap::new();
        for line in text.lines() {
            match line.split_once(':') {
                Some((key, value)) => {
                    block.insert(key.trim().to_owned(), value.trim().to_owned());
                }
                None if line.trim().is_empty() => blocks.push(std::mem::take(&mut block)),
                None => {}
            }
        }
        blocks.push(block);
        // Some architectures end with a block about the board.
        blocks.retain(|block| block.contains_key("processor"));
        if blocks.is_empty() {
            return Err(ReadError::lacks(PATH, "processor"));
        }
        Ok(Self { blocks })
    }

    /// The value in the first block that has the key.
    pub(crate) fn first(&self, key: &str) -> Result<&str, ReadError> {
        self.blocks
            .iter()
            .find_map(|block| block.get(key))
            .map(String::as_str)
            .filter(|value| !value.is_empty())
            .ok_or_else(|| ReadError::lacks(PATH, key))
    }

    /// Numbers of the processors listed; the kernel lists those that are online.
    pub(crate) fn processors(&self) -> Result<Vec<u32>, ReadError> {
        let mut processors: Vec<u32> = self.column("processor")?;
        processors.sort_unstable();
        processors.dedup();
        Ok(processors)
    }

    /// One number per block.
    fn column(&self, key: &str) -> Result<Vec<u32>, ReadError> {
        self.blocks
            .iter()
            .map(|block| {
                let value = block.get(key).map_or("no such key", String::as_str);
                value
                    .parse()
                    .map_err(|_| ReadError::unexpected(PATH, &format!("a number as {key}"), value))
            })
            .collect()
    }

    /// The maker: x86 spells it out, ARM gives a code that stands for it.
    pub(crate) fn vendor(&self) -> Result<String, ReadError> {
        if let Ok(name) = self.first("vendor_id") {
            return Ok(name.to_owned());
        }
        let code = self.hexadecimal("CPU implementer")?;
        // Arm's list of implementers (MIDR_EL1, bits 31 to 24).
        let name = match code {
            0x41 => "ARM",
            0x42 => "Broadcom",
            0x43 => "Cavium",
            0x46 => "Fujitsu",
            0x48 => "HiSilicon",
            0x4e => "NVIDIA",
            0x51 => "Qualcomm",
            0x61 => "Apple",
            0x6d => "Microsoft",
            0xc0 => "Ampere",
            other => return Ok(format!("implementer {other:#04x}")),
        };
        Ok(name.to_owned())
    }

    /// Family, model and stepping of the first processor, or ARM's counterparts. Machines that mix
    /// core designs list the others later; the first stands for the machine.
    pub(crate) fn signature(&self) -> Result<CpuSignature, ReadError> {
        let decimal = |key| {
            let value = self.first(key)?;
            value
                .parse::<u32>()
                .map_err(|_| ReadError::unexpected(PATH, &format!("a number as {key}"), value))
        };
        if let Ok(family) = decimal("cpu family") {
            return Ok(CpuSignature {
                family,
                model: decimal("model")?,
                stepping: decimal("stepping")?,
            });
        }
        let variant = self.hexadecimal("CPU variant")?;
        let revision = decimal("CPU revision")?;
        Ok(CpuSignature {
            family: self.hexadecimal("CPU implementer")?,
            model: self.hexadecimal("CPU part")?,
            // Four bits each in the register they come from.
            stepping: (variant & 0xf) * 16 + (revision & 0xf),
        })
    }

    fn hexadecimal(&self, key: &str) -> Result<u32, ReadError> {
        let value = self.first(key)?;
        value
            .strip_prefix("0x")
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .ok_or_else(|| ReadError::unexpected(PATH, &format!("0x… as {key}"), value))
    }

    /// Clocks in MHz, one per block that states one.
    pub(crate) fn megahertz(&self) -> Vec<f64> {
        self.blocks
            .iter()
            .filter_map(|block| block.get("cpu MHz")?.parse().ok())
            .collect()
    }

    /// Where each processor sits, each processor once.
    pub(crate) fn places(&self) -> Result<Vec<Place>, ReadError> {
        let processors = self.column("processor")?.into_iter();
        let packages = self.column("physical id")?.into_iter();
        let cores = self.column("core id")?.into_iter();
        let mut seen = BTreeSet::new();
        Ok(processors
            .zip(packages.zip(cores))
            .filter(|(cpu, _)| seen.insert(*cpu))
            .map(|(cpu, (package, core))| Place { cpu, package, core })
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeTree;

    fn info(text: &str) -> Result<CpuInfo, ReadError> {
        let fake = FakeTree::new();
        fake.write(PATH, text);
        CpuInfo::read(&fake.tree())
    }

    #[test]
    fn arm_codes_become_a_vendor_and_a_signature() {
        let graviton = info(
            "processor\t: 0\nBogoMIPS\t: 243.75\nCPU implementer\t: 0x41\nCPU variant\t: 0x3\n\
             CPU part\t: 0xd0c\nCPU revision\t: 1\n\nprocessor : 1\n\nHardware : board\n",
        )
        .unwrap();
        assert_eq!(graviton.vendor().unwrap(), "ARM");
        assert_eq!(
            graviton.signature().unwrap(),
            CpuSignature {
                family: 0x41,
                model: 0xd0c,
                stepping: 0x31
            }
        );
        assert_eq!(graviton.processors().unwrap(), [0, 1]);
        assert!(graviton.first("model name").is_err());
        let other = info("processor: 0\nCPU implementer: 0x77\n").unwrap();
        assert_eq!(other.vendor().unwrap(), "implementer 0x77");
    }

    #[test]
    fn x86_blocks_carry_names_and_places() {
        let info = info(
            "processor: 0\nvendor_id: GenuineIntel\ncpu family: 6\nmodel: 85\nstepping: 7\n\
             cpu MHz: 2500.5\nphysical id: 0\ncore id: 3\n\n\
             processor: 4\ncpu MHz: x\nphysical id: 1\ncore id: 3\n",
        )
        .unwrap();
        assert_eq!(info.vendor().unwrap(), "GenuineIntel");
        assert_eq!(
            info.signature().unwrap(),
            CpuSignature {
                family: 6,
                model: 85,
                stepping: 7
            }
        );
        assert_eq!(info.megahertz(), [2500.5]);
        let place = |cpu, package, core| Place { cpu, package, core };
        assert_eq!(info.places().unwrap(), [place(0, 0, 3), place(4, 1, 3)]);
    }

    #[test]
    fn what_is_no_cpuinfo_is_an_error() {
        assert!(info("").is_err());
        assert!(info("no colon here\n\n\n").is_err());
        let odd = info("processor: zero\n").unwrap();
        assert_eq!(
            odd.processors().unwrap_err().to_string(),
            "/proc/cpuinfo: expected a number as processor, found `zero`"
        );
    }
}
