//! The tree under which Ethereum hashes a block's transactions and receipts (a Merkle-Patricia trie of the
//! items' numbers): its root, the branch that leads to one item, and what a branch shows under a root.
//! <https://ethereum.org/developers/docs/data-structures-and-encoding/patricia-merkle-trie/>

use super::rlp::{self, Item};
use ethers_core::utils::keccak256;
use ethers_core::utils::rlp::RlpStream;
use std::collections::BTreeMap;
use thiserror::Error;

/// Nodes shorter than a hash stand inside the node above them.
const HASH_BYTES: usize = 32;

/// Why a branch shows nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TrieError {
    /// It ends before it has come to an item.
    #[error("the branch ends too early")]
    TooShort,
    /// It goes on behind the item.
    #[error("the branch goes on behind its end")]
    TooLong,
    /// A node does not have the hash that the node above it, or the root, names.
    #[error("node {0} of the branch does not have the hash that leads to it")]
    OtherHash(usize),
    /// A node is of no known form.
    #[error("node {0} of the branch is none of such a tree")]
    Malformed(usize),
    /// There is no item of that number.
    #[error("the branch shows that there is no such item")]
    Absent,
}

/// A tree over items, made once for all of its branches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trie {
    count: usize,
    root: Vec<u8>,
    /// The nodes below the root that are named by their hash, by the way that leads to each.
    below: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Trie {
    /// The tree over items, in their order.
    pub fn over(items: &[Vec<u8>]) -> Trie {
        let numbered = items.iter().enumerate();
        let mut ways: Vec<(Vec<u8>, &[u8])> = numbered
            .map(|(index, item)| (nibbles_of(index), item.as_slice()))
            .collect();
        ways.sort();
        let mut below = BTreeMap::new();
        let root = node(&ways, 0, &mut below);
        Trie {
            count: items.len(),
            root,
            below,
        }
    }

    /// The hash over all of it.
    pub fn root(&self) -> [u8; 32] {
        keccak256(&self.root)
    }

    /// The nodes from the root down to one item, as they are hashed; empty where there is no such item.
    pub fn branch(&self, index: usize) -> Vec<Vec<u8>> {
        if index >= self.count {
            return Vec::new();
        }
        let way = nibbles_of(index);
        let below = (1..=way.len()).filter_map(|steps| self.below.get(&way[..steps]));
        std::iter::once(&self.root).chain(below).cloned().collect()
    }
}

/// The item of a number, which a branch shows under a root.
///
/// # Errors
/// [`TrieError`].
pub fn value(root: &[u8; 32], index: usize, branch: &[Vec<u8>]) -> Result<Vec<u8>, TrieError> {
    let path = nibbles_of(index);
    let mut rest = path.as_slice();
    let mut used = 0;
    let mut node = hashed(branch, &mut used, root)?;
    loop {
        let malformed = |_| TrieError::Malformed(used - 1);
        let items = match node {
            Item::List(inside) => rlp::raw_items(inside).map_err(malformed)?,
            Item::Bytes(_) => return Err(TrieError::Malformed(used - 1)),
        };
        let below = match items.as_slice() {
            [(key, _), (below, _)] => {
                let (steps, is_leaf) =
                    steps(key.bytes().map_err(malformed)?).ok_or(TrieError::Malformed(used - 1))?;
                rest = rest.strip_prefix(steps.as_slice()).ok_or(TrieError::Absent)?;
                match (is_leaf, rest.is_empty()) {
                    (true, true) => return last(*below, used, branch.len()),
                    (true, false) => return Err(TrieError::Absent),
                    // A step down that steps over nothing could go on for ever.
                    (false, _) if steps.is_empty() => return Err(TrieError::Malformed(used - 1)),
                    (false, _) => *below,
                }
            }
            children if children.len() == 17 => match rest.split_first() {
                Some((step, behind)) => {
                    rest = behind;
                    children[usize::from(*step)].0
                }
                None => return last(children[16].0, used, branch.len()),
            },
            _ => return Err(TrieError::Malformed(used - 1)),
        };
        node = match below {
            Item::List(_) => below,
            Item::Bytes([]) => return Err(TrieError::Absent),
            Item::Bytes(hash) => {
                let hash = hash.try_into().map_err(|_| TrieError::Malformed(used - 1))?;
                hashed(branch, &mut used, hash)?
            }
        };
    }
}

/// The next node of a branch, which has to have this hash.
fn hashed<'b>(branch: &'b [Vec<u8>], used: &mut usize, hash: &[u8; 32]) -> Result<Item<'b>, TrieError> {
    let place = *used;
    let bytes = branch.get(place).ok_or(TrieError::TooShort)?;
    *used += 1;
    match keccak256(bytes) == *hash {
        true => rlp::whole(bytes).map_err(|_| TrieError::Malformed(place)),
        false => Err(TrieError::OtherHash(place)),
    }
}

fn last(item: Item<'_>, used: usize, count: usize) -> Result<Vec<u8>, TrieError> {
    match item {
        _ if used < count => Err(TrieError::TooLong),
        Item::Bytes([]) => Err(TrieError::Absent),
        Item::Bytes(bytes) => Ok(bytes.to_vec()),
        Item::List(_) => Err(TrieError::Malformed(used - 1)),
    }
}

/// The way to an item: the half bytes of its number in RLP.
fn nibbles_of(index: usize) -> Vec<u8> {
    let digits = index.to_be_bytes();
    let zeros = digits.iter().take_while(|digit| **digit == 0).count();
    let key = ethers_core::utils::rlp::encode(&&digits[zeros..]);
    key.iter().flat_map(|byte| [byte >> 4, byte & 15]).collect()
}

/// Some steps in a node's compact form: half bytes two by two, and before them whether it is a leaf and
/// whether they are odd.
fn compact(steps: &[u8], is_leaf: bool) -> Vec<u8> {
    let is_odd = steps.len() % 2 == 1;
    let flags = 2 * u8::from(is_leaf) + u8::from(is_odd);
    let mut halves = vec![flags];
    if !is_odd {
        halves.push(0);
    }
    halves.extend(steps);
    halves.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// The steps of a compact form, and whether it is a leaf's.
fn steps(compact: &[u8]) -> Option<(Vec<u8>, bool)> {
    let halves: Vec<u8> = compact.iter().flat_map(|byte| [byte >> 4, byte & 15]).collect();
    let (flags, rest) = halves.split_first()?;
    let steps = match flags & 1 {
        1 => rest,
        _ => rest.strip_prefix(&[0])?,
    };
    (*flags < 4).then(|| (steps.to_vec(), flags & 2 != 0))
}

/// The node over items, which are given by their whole ways and in the order of these, `depth` steps down.
/// Those below it that are named by their hash are put into `below`.
fn node(items: &[(Vec<u8>, &[u8])], depth: usize, below: &mut BTreeMap<Vec<u8>, Vec<u8>>) -> Vec<u8> {
    let (first, last) = match items {
        [] => return vec![0x80],
        [(way, item)] => {
            let mut leaf = RlpStream::new_list(2);
            leaf.append(&compact(&way[depth..], true)).append(item);
            return leaf.out().to_vec();
        }
        [(first, _), .., (last, _)] => (first, last),
    };
    // In order, what the first and the last share all share.
    let shared = first[depth..]
        .iter()
        .zip(&last[depth..])
        .take_while(|(a, b)| a == b)
        .count();
    if shared > 0 {
        let mut extension = RlpStream::new_list(2);
        extension.append(&compact(&first[depth..depth + shared], false));
        append_child(&mut extension, items, depth + shared, below);
        return extension.out().to_vec();
    }
    let mut branch = RlpStream::new_list(17);
    for step in 0..16_u8 {
        let begin = items.partition_point(|(way, _)| way.get(depth).is_none_or(|own| *own < step));
        let end = items.partition_point(|(way, _)| way.get(depth).is_none_or(|own| *own <= step));
        match begin == end {
            true => {
                branch.append_empty_data();
            }
            false => append_child(&mut branch, &items[begin..end], depth + 1, below),
        }
    }
    // No number in RLP is the beginning of another, so no item ends at a branch.
    branch.append_empty_data();
    branch.out().to_vec()
}

/// A node below another: itself where it is short, else its hash.
fn append_child(
    above: &mut RlpStream,
    items: &[(Vec<u8>, &[u8])],
    depth: usize,
    below: &mut BTreeMap<Vec<u8>, Vec<u8>>,
) {
    let child = node(items, depth, below);
    if child.len() < HASH_BYTES {
        above.append_raw(&child, 1);
        return;
    }
    above.append(&keccak256(&child).as_slice());
    if let Some((way, _)) = items.first() {
        below.insert(way[..depth].to_vec(), child);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn items(count: usize, bytes: usize) -> Vec<Vec<u8>> {
        (0..count)
            .map(|number| {
                (0..bytes)
                    .map(|place| u8::try_from((number + 3 * place) % 251).unwrap() + 1)
                    .collect()
            })
            .collect()
    }

    /// The root of a block without transactions, as every such header has it.
    #[test]
    fn nothing_has_the_root_that_empty_blocks_have() {
        assert_eq!(
            const_hex::encode(Trie::over(&[]).root()),
            "56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421"
        );
        assert!(Trie::over(&[]).branch(0).is_empty());
    }

    #[test]
    fn every_item_is_shown_by_its_branch_and_by_no_other() {
        for (count, bytes) in [
            (1, 1),
            (2, 1),
            (2, 40),
            (16, 3),
            (17, 40),
            (127, 40),
            (128, 1),
            (129, 40),
            (300, 200),
        ] {
            let items = items(count, bytes);
            let trie = Trie::over(&items);
            let root = trie.root();
            for (index, item) in items.iter().enumerate() {
                let nodes = trie.branch(index);
                assert_eq!(
                    value(&root, index, &nodes).as_ref(),
                    Ok(item),
                    "{index} of {count}"
                );
                // Short items stand in the node above them, and so in each other's branches.
                let other = (index + 1) % count;
                if count > 1 && bytes >= HASH_BYTES {
                    assert_ne!(value(&root, other, &nodes).as_ref(), Ok(&items[other]));
                }
                assert_eq!(
                    value(&root, index, &nodes[..nodes.len() - 1]),
                    Err(TrieError::TooShort)
                );
                let longer = [nodes.clone(), vec![vec![0xc0]]].concat();
                assert_eq!(value(&root, index, &longer), Err(TrieError::TooLong));
                for place in 0..nodes.len() {
                    let mut spoiled = nodes.clone();
                    *spoiled[place].last_mut().unwrap() ^= 1;
                    assert_eq!(value(&root, index, &spoiled), Err(TrieError::OtherHash(place)));
                }
            }
            assert_eq!(trie.branch(count), Vec::<Vec<u8>>::new());
        }
    }

    #[test]
    fn a_branch_shows_that_an_item_is_not_there() {
        let items = items(3, 40);
        let trie = Trie::over(&items);
        let (root, nodes) = (trie.root(), trie.branch(1));
        assert_eq!(value(&root, 5, &nodes), Err(TrieError::Absent));
    }

    #[test]
    fn compact_steps_are_read_back() {
        for count in 0..6_u8 {
            let way: Vec<u8> = (1..=count).collect();
            for is_leaf in [true, false] {
                assert_eq!(steps(&compact(&way, is_leaf)), Some((way.clone(), is_leaf)));
            }
        }
        assert_eq!(steps(&[]), None);
        assert_eq!(steps(&[0x40]), None, "an unknown flag");
        assert_eq!(steps(&[0x05]), None, "something in the padding");
    }

    /// Every form of node, by anybody's hand.
    #[test]
    fn no_made_up_node_leads_on_for_ever() {
        let mut extension = RlpStream::new_list(2);
        extension
            .append(&compact(&[], false))
            .append(&[7_u8; 32].as_slice());
        let node = extension.out().to_vec();
        assert_eq!(value(&keccak256(&node), 0, &[node]), Err(TrieError::Malformed(0)));
    }

    proptest! {
        #[test]
        fn any_branch_is_followed_or_refused(
            index in 0..1_000_usize,
            nodes in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 1..4),
        ) {
            let root = keccak256(&nodes[0]);
            let _ = value(&root, index, &nodes);
        }
    }
}
