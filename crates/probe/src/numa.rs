//! Memory nodes: which memory is near which processors, and how far the rest is.

use kernelwise_types::Reading;
use kernelwise_types::machine::NumaNode;
use kernelwise_types::units::Bytes;

use crate::tree::{ReadError, Tree};

const NODES: &str = "/sys/devices/system/node";

pub(crate) fn read(tree: &Tree) -> Reading<Vec<NumaNode>> {
    nodes(tree).into()
}

fn nodes(tree: &Tree) -> Result<Vec<NumaNode>, ReadError> {
    let path = format!("{NODES}/online");
    let online = tree.id_list(&path)?;
    if online.is_empty() {
        return Err(ReadError::lacks(&path, "node"));
    }
    online
        .iter()
        .map(|&id| {
            let file = |name: &str| format!("{NODES}/node{id}/{name}");
            Ok(NumaNode {
                id,
                // Empty for memory without processors, such as an expander.
                cpus: tree.id_list(&file("cpulist"))?,
                memory: tree
                    .kilobytes(&file("meminfo"), "MemTotal")
                    .map(Bytes)
                    .into(),
                distances: distances(tree, &file("distance"), online.len()).into(),
            })
        })
        .collect()
}

/// One number per node that is online, in their order.
fn distances(tree: &Tree, path: &str, nodes: usize) -> Result<Vec<u32>, ReadError> {
    let text = tree.text(path)?;
    let distances: Option<Vec<u32>> = text
        .split_whitespace()
        .map(|word| word.parse().ok())
        .collect();
    distances
        .filter(|distances| distances.len() == nodes)
        .ok_or_else(|| ReadError::unexpected(path, &format!("{nodes} distances"), &text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::FakeTree;

    fn two_nodes() -> FakeTree {
        let fake = FakeTree::new();
        fake.write("/sys/devices/system/node/online", "0-1\n");
        for (node, cpus, distance) in [(0, "0-3", "10 21"), (1, "4-7", "21 10")] {
            let file = |name: &str| format!("{NODES}/node{node}/{name}");
            fake.write(&file("cpulist"), cpus);
            fake.write(&file("distance"), distance);
            fake.write(
                &file("meminfo"),
                &format!("Node {node} MemTotal:  1024 kB\n"),
            );
        }
        fake
    }

    #[test]
    fn nodes_know_their_processors_memory_and_distances() {
        let nodes = read(&two_nodes().tree());
        let nodes = nodes.known().unwrap();
        assert_eq!((nodes[0].id, nodes[1].id), (0, 1));
        assert_eq!(nodes[1].cpus, [4, 5, 6, 7]);
        assert_eq!(nodes[0].memory, Reading::Known(Bytes(1 << 20)));
        assert_eq!(nodes[1].distances, Reading::Known(vec![21, 10]));
    }

    #[test]
    fn what_does_not_fit_is_unknown() {
        let fake = two_nodes();
        fake.write("/sys/devices/system/node/node0/distance", "10");
        fake.write("/sys/devices/system/node/node1/meminfo", "nothing");
        let nodes = read(&fake.tree());
        let nodes = nodes.known().unwrap();
        assert_eq!(
            nodes[0].distances.reason(),
            Some("/sys/devices/system/node/node0/distance: expected 2 distances, found `10`")
        );
        assert!(nodes[1].memory.known().is_none());
        fake.remove("/sys/devices/system/node/node1/cpulist");
        assert!(
            read(&fake.tree())
                .reason()
                .unwrap()
                .contains("node1/cpulist")
        );
        assert!(read(&FakeTree::new().tree()).known().is_none());
    }
}
