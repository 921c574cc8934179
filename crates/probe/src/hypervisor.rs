//! Whether this machine is somebody's guest.
//!
//! The processor itself is asked first. Where it cannot answer (ARM), the firmware is: a hypervisor
//! node in the device tree, then the names in the DMI tables.

use kernelwise_types::Reading;
use kernelwise_types::machine::Hypervisor;

use crate::tree::Tree;

const DEVICE_TREE: &str = "/proc/device-tree/hypervisor/compatible";
const MAKER: &str = "/sys/class/dmi/id/sys_vendor";
const PRODUCT: &str = "/sys/class/dmi/id/product_name";

/// Words in the DMI names of virtual machines, and who they belong to.
const MARKS: [(&str, &str); 9] = [
    ("QEMU", "KVM"),
    ("KVM", "KVM"),
    ("Amazon EC2", "KVM"),
    ("Google Compute Engine", "KVM"),
    ("VMware", "VMware"),
    ("Virtual Machine", "Hyper-V"),
    ("VirtualBox", "VirtualBox"),
    ("Xen", "Xen"),
    ("Apple Virtualization", "Apple Virtualization"),
];

pub(crate) fn read(tree: &Tree, said: &Reading<Hypervisor>) -> Reading<Hypervisor> {
    if said.known().is_some() {
        return said.clone();
    }
    if let Ok(compatible) = tree.text(DEVICE_TREE) {
        // A list of names separated by zero bytes, the most specific first: `linux,kvm`, `xen,xen-4.17`.
        let first = compatible.split('\0').next().unwrap_or_default();
        let name = match first {
            "linux,kvm" => "KVM",
            first if first.starts_with("xen,") => "Xen",
            first => first,
        };
        return Reading::Known(Hypervisor::Named(name.to_owned()));
    }
    let maker = match tree.text(MAKER) {
        Ok(maker) => maker,
        Err(error) => return Reading::unknown(error.to_string()),
    };
    // Absent on some machines; the maker alone then decides.
    let product = tree.text(PRODUCT).unwrap_or_default();
    // The cloud's own name stands on its undivided machines too.
    if product.contains("metal") {
        return Reading::Known(Hypervisor::None);
    }
    let mark = MARKS
        .iter()
        .find(|(mark, _)| maker.contains(mark) || product.contains(mark));
    Reading::Known(match mark {
        Some((_, name)) => Hypervisor::Named((*name).to_owned()),
        None => Hypervisor::None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeTree;

    fn asked(fake: &FakeTree) -> Reading<Hypervisor> {
        read(&fake.tree(), &Reading::unknown("cannot be asked"))
    }

    fn named(name: &str) -> Reading<Hypervisor> {
        Reading::Known(Hypervisor::Named(name.into()))
    }

    #[test]
    fn the_processor_is_believed_first() {
        let fake = FakeTree::new();
        fake.write(MAKER, "QEMU");
        let said = Reading::Known(Hypervisor::None);
        assert_eq!(read(&fake.tree(), &said), said);
    }

    #[test]
    fn firmware_tells_guests_from_metal() {
        let fake = FakeTree::new();
        assert_eq!(
            asked(&fake).reason(),
            Some("/sys/class/dmi/id/sys_vendor: not found")
        );
        fake.write(MAKER, "Amazon EC2\n");
        assert_eq!(asked(&fake), named("KVM"));
        fake.write(PRODUCT, "c7g.metal\n");
        assert_eq!(asked(&fake), Reading::Known(Hypervisor::None));
        fake.write(MAKER, "Microsoft Corporation\n");
        fake.write(PRODUCT, "Virtual Machine\n");
        assert_eq!(asked(&fake), named("Hyper-V"));
        fake.write(MAKER, "LENOVO\n");
        fake.write(PRODUCT, "20XW\n");
        assert_eq!(asked(&fake), Reading::Known(Hypervisor::None));
        fake.write(DEVICE_TREE, "xen,xen-4.17\0xen,xen\0");
        assert_eq!(asked(&fake), named("Xen"));
    }
}
