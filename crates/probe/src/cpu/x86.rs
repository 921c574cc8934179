//! What an x86 processor says of itself through CPUID.
//!
//! CPUID is the first choice for who the processor is: it needs no file, and containers do not hide
//! it. Hypervisors can rewrite it, and where they do, theirs is the processor this program runs on.

use kernelwise_types::Reading;
use kernelwise_types::machine::{Cache, CpuSignature, Hypervisor, Isa};
use kernelwise_types::units::{Bytes, Hertz};
use raw_cpuid::{CacheType, CpuId, CpuIdReader, Hypervisor as Signature};

use super::Identity;

/// State component of the AMX tile data in the XSAVE area (Intel SDM volume 1, chapter 13).
const TILE_DATA: u32 = 18;

pub(crate) fn identify<R: CpuIdReader>(cpuid: &CpuId<R>) -> Identity {
    let vendor = cpuid.get_vendor_info();
    let vendor = vendor.as_ref().map(|vendor| vendor.as_str().trim());
    let brand = cpuid.get_processor_brand_string();
    let brand = brand.as_ref().map(|brand| brand.as_str().trim());
    let features = cpuid.get_feature_info();
    Identity {
        vendor: spelled(vendor, "vendor"),
        model: spelled(brand, "brand string"),
        signature: match features {
            Some(features) => Reading::Known(CpuSignature {
                family: features.family_id().into(),
                model: features.model_id().into(),
                stepping: features.stepping_id().into(),
            }),
            None => Reading::unknown("CPUID has no signature (leaf 0x1)"),
        },
        isa: amx(cpuid),
        tsc: tsc(cpuid),
        hypervisor: hypervisor(cpuid),
        caches: caches(cpuid),
    }
}

fn spelled(text: Option<&str>, what: &str) -> Reading<String> {
    match text {
        Some(text) if !text.is_empty() => Reading::Known(text.to_owned()),
        _ => Reading::unknown(format!("CPUID has no {what}")),
    }
}

/// The AMX sets, if the operating system saves their registers.
///
/// That is asked without reading XCR0, which takes an unsafe instruction: CPUID leaf 0xD tells both
/// where the tile data would lie in the save area and how large the area is with what is enabled *now*. Only
/// with the tiles enabled does the area reach that far. Linux enables them for everyone but lets
/// a process use them only after `arch_prctl(ARCH_REQ_XCOMP_PERM)`; a kernel asks for that itself.
pub(crate) fn amx<R: CpuIdReader>(cpuid: &CpuId<R>) -> Vec<Isa> {
    let enabled = cpuid.get_extended_state_info().is_some_and(|state| {
        let area = state.xsave_area_size_enabled_features();
        state.iter().any(|component| {
            component.subleaf == TILE_DATA
                && component.size() > 0
                && u64::from(area) >= u64::from(component.offset()) + u64::from(component.size())
        })
    });
    let Some(features) = cpuid.get_extended_feature_info().filter(|_| enabled) else {
        return Vec::new();
    };
    let sets = [
        (Isa::AmxTile, features.has_amx_tile()),
        (Isa::AmxInt8, features.has_amx_int8()),
        (Isa::AmxBf16, features.has_amx_bf16()),
    ];
    sets.into_iter()
        .filter_map(|(isa, has)| has.then_some(isa))
        .collect()
}

fn tsc<R: CpuIdReader>(cpuid: &CpuId<R>) -> Reading<Hertz> {
    let crystal = cpuid.get_tsc_info().and_then(|info| info.tsc_frequency());
    // VMware's leaf, which KVM and QEMU can offer too. Others use the number for something else.
    let from_host = || {
        let info = cpuid.get_hypervisor_info()?;
        match info.identify() {
            Signature::VMware | Signature::KVM | Signature::QEMU => info
                .tsc_frequency()
                .map(|kilohertz| u64::from(kilohertz) * 1000),
            _ => None,
        }
    };
    let hertz = crystal.or_else(from_host).filter(|hertz| *hertz > 0);
    match hertz.map(|hertz| Hertz::new(hertz as f64)) {
        Some(Ok(hertz)) => Reading::Known(hertz),
        _ => Reading::unknown("CPUID states no TSC frequency (leaves 0x15 and 0x40000010)"),
    }
}

fn hypervisor<R: CpuIdReader>(cpuid: &CpuId<R>) -> Reading<Hypervisor> {
    let Some(features) = cpuid.get_feature_info() else {
        return Reading::unknown("CPUID has no feature bits (leaf 0x1)");
    };
    if !features.has_hypervisor() {
        return Reading::Known(Hypervisor::None);
    }
    let name = match cpuid.get_hypervisor_info().map(|info| info.identify()) {
        Some(Signature::Xen) => "Xen".to_owned(),
        Some(Signature::VMware) => "VMware".to_owned(),
        Some(Signature::HyperV) => "Hyper-V".to_owned(),
        Some(Signature::KVM) => "KVM".to_owned(),
        Some(Signature::QEMU) => "QEMU".to_owned(),
        Some(Signature::Bhyve) => "bhyve".to_owned(),
        Some(Signature::QNX) => "QNX".to_owned(),
        Some(Signature::ACRN) => "ACRN".to_owned(),
        Some(Signature::Unknown(ebx, ecx, edx)) => [ebx, ecx, edx]
            .iter()
            .flat_map(|register| register.to_le_bytes())
            .filter(u8::is_ascii_graphic)
            .map(char::from)
            .collect(),
        None => String::new(),
    };
    if name.is_empty() {
        Reading::unknown("CPUID says there is a hypervisor, which does not name itself")
    } else {
        Reading::Known(Hypervisor::Named(name))
    }
}

/// Caches of the core this runs on. CPUID counts how many processors *could* share a cache, which is
/// the real number only when it is one.
fn caches<R: CpuIdReader>(cpuid: &CpuId<R>) -> Reading<Vec<Cache>> {
    let mut caches: Vec<Cache> = cpuid
        .get_cache_parameters()
        .into_iter()
        .flatten()
        .filter(|cache| matches!(cache.cache_type(), CacheType::Data | CacheType::Unified))
        .map(|cache| {
            let line = cache.coherency_line_size() as u64;
            let ways = cache.associativity() as u64;
            let size = line * ways * cache.physical_line_partitions() as u64 * cache.sets() as u64;
            Cache {
                level: cache.level(),
                unified: cache.cache_type() == CacheType::Unified,
                size_bytes: Bytes(size),
                line_bytes: Reading::Known(line as u32),
                ways: Reading::Known(ways as u32),
                shared_by: match cache.max_cores_for_cache() {
                    1 => Reading::Known(1),
                    most => Reading::unknown(format!("CPUID says only: at most {most}")),
                },
                instances: Reading::unknown("CPUID describes one core, not the machine"),
            }
        })
        .collect();
    caches.sort_by_key(|cache| cache.level);
    if caches.is_empty() {
        Reading::unknown("CPUID describes no caches (leaves 0x4 and 0x8000001d)")
    } else {
        Reading::Known(caches)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use raw_cpuid::CpuIdResult;

    use super::*;

    /// A processor that answers from a table of (leaf, subleaf) and with zeros elsewhere.
    fn scripted(
        leaves: &[((u32, u32), [u32; 4])],
    ) -> CpuId<impl Fn(u32, u32) -> CpuIdResult + Clone + use<>> {
        let table: HashMap<(u32, u32), [u32; 4]> = leaves.iter().copied().collect();
        CpuId::with_cpuid_fn(move |leaf, subleaf| {
            let [eax, ebx, ecx, edx] = table.get(&(leaf, subleaf)).copied().unwrap_or_default();
            CpuIdResult { eax, ebx, ecx, edx }
        })
    }

    fn word(text: &str) -> u32 {
        u32::from_le_bytes(text.as_bytes().try_into().unwrap())
    }

    fn intel(max_leaf: u32) -> ((u32, u32), [u32; 4]) {
        let name = ["Genu", "ntel", "ineI"].map(word);
        ((0, 0), [max_leaf, name[0], name[1], name[2]])
    }

    #[test]
    fn an_amd_guest_on_kvm_is_recognised() {
        let identity = identify(&scripted(&[
            ((0, 0), [0x10, word("Auth"), word("cAMD"), word("enti")]),
            // Family 0xf + 0xa, model 0x11, stepping 1; hypervisor bit.
            ((1, 0), [0x00a1_0f11, 0, 1 << 31, 0]),
            ((0x8000_0000, 0), [0x8000_001f, 0, 0, 0]),
            // 32 KiB, 8 ways, 64-byte lines, 64 sets, two threads; then 1 MiB unified.
            (
                (0x8000_001d, 0),
                [1 | 1 << 5 | 1 << 14, 63 | 7 << 22, 63, 0],
            ),
            ((0x8000_001d, 1), [3 | 2 << 5, 63 | 7 << 22, 2047, 0]),
            (
                (0x4000_0000, 0),
                [0x4000_0010, word("KVMK"), word("VMKV"), 0x4d],
            ),
            ((0x4000_0010, 0), [2_450_000, 0, 0, 0]),
        ]));
        assert_eq!(identity.vendor.known().unwrap(), "AuthenticAMD");
        assert_eq!(identity.model.reason(), Some("CPUID has no brand string"));
        assert_eq!(
            identity.signature.known(),
            Some(&CpuSignature {
                family: 0x19,
                model: 0x11,
                stepping: 1
            })
        );
        assert_eq!(
            identity.hypervisor.known(),
            Some(&Hypervisor::Named("KVM".into()))
        );
        assert_eq!(identity.tsc.known().unwrap().get(), 2.45e9);
        let caches = identity.caches.known().unwrap();
        let sizes: Vec<_> = caches
            .iter()
            .map(|c| (c.level, c.unified, c.size_bytes.0))
            .collect();
        assert_eq!(sizes, [(1, false, 32 << 10), (2, true, 1 << 20)]);
        assert_eq!(
            caches[0].shared_by.reason(),
            Some("CPUID says only: at most 2")
        );
        assert_eq!(caches[1].shared_by, Reading::Known(1));
        assert_eq!(caches[1].ways, Reading::Known(8));
    }

    #[test]
    fn hypervisors_are_named_as_they_name_themselves() {
        let under = |words: [u32; 3]| {
            hypervisor(&scripted(&[
                intel(1),
                ((1, 0), [0, 0, 1 << 31, 0]),
                (
                    (0x4000_0000, 0),
                    [0x4000_0001, words[0], words[1], words[2]],
                ),
            ]))
        };
        let named = |name: &str| Reading::Known(Hypervisor::Named(name.into()));
        assert_eq!(under(["Micr", "osof", "t Hv"].map(word)), named("Hyper-V"));
        assert_eq!(under(["XenV", "MMXe", "nVMM"].map(word)), named("Xen"));
        assert_eq!(
            under(["Some", "Othe", "rVM "].map(word)),
            named("SomeOtherVM")
        );
        assert!(under([0; 3]).known().is_none());
        let bare = scripted(&[intel(1), ((1, 0), [0; 4])]);
        assert_eq!(hypervisor(&bare), Reading::Known(Hypervisor::None));
    }

    #[test]
    fn the_tsc_follows_the_crystal_or_stays_unknown() {
        let crystal = scripted(&[intel(0x15), ((0x15, 0), [2, 200, 24_000_000, 0])]);
        assert_eq!(tsc(&crystal).known().unwrap().get(), 2.4e9);
        let silent = scripted(&[intel(0x15), ((0x15, 0), [2, 200, 0, 0])]);
        assert!(tsc(&silent).reason().unwrap().contains("0x15"));
        // Hyper-V gives the leaf another meaning.
        let [m, o, t] = ["Micr", "osof", "t Hv"].map(word);
        let hyper_v = scripted(&[
            intel(1),
            ((1, 0), [0, 0, 1 << 31, 0]),
            ((0x4000_0000, 0), [0x4000_0010, m, o, t]),
            ((0x4000_0010, 0), [2_450_000, 0, 0, 0]),
        ]);
        assert!(tsc(&hyper_v).known().is_none());
    }

    #[test]
    fn amx_counts_only_when_the_system_saves_its_tiles() {
        let with_area = |area: u32| {
            amx(&scripted(&[
                intel(0xd),
                ((7, 0), [0, 0, 0, 1 << 22 | 1 << 24]),
                ((0xd, 0), [1 << TILE_DATA | 7, area, 0, 0]),
                ((0xd, TILE_DATA), [8192, 2816, 0, 0]),
            ]))
        };
        assert_eq!(with_area(11008), [Isa::AmxTile, Isa::AmxBf16]);
        assert_eq!(with_area(2696), []);
    }
}
