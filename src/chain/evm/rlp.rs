//! Reading RLP, the form in which Ethereum hashes what it hashes:
//! <https://ethereum.org/developers/docs/data-structures-and-encoding/rlp/>. Strict, because what has two
//! forms has two hashes: lengths as short as they can be, and nothing behind the end. Writing is left to
//! `ethers_core`.

/// One item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item<'a> {
    /// Bytes.
    Bytes(&'a [u8]),
    /// Items one after the other.
    List(&'a [u8]),
}

/// No such form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// The item that is all of `bytes`.
pub(super) fn whole(bytes: &[u8]) -> Result<Item<'_>, Malformed> {
    match first(bytes)? {
        (item, _, []) => Ok(item),
        _ => Err(Malformed),
    }
}

/// The items of the list that is all of `bytes`.
pub(super) fn list(bytes: &[u8]) -> Result<Vec<Item<'_>>, Malformed> {
    match whole(bytes)? {
        Item::List(inside) => items(inside),
        Item::Bytes(_) => Err(Malformed),
    }
}

/// Items one after the other.
pub(super) fn items(inside: &[u8]) -> Result<Vec<Item<'_>>, Malformed> {
    Ok(raw_items(inside)?.into_iter().map(|(item, _)| item).collect())
}

/// The same, each with its own bytes.
pub(super) fn raw_items(mut inside: &[u8]) -> Result<Vec<(Item<'_>, &[u8])>, Malformed> {
    let mut found = Vec::new();
    while !inside.is_empty() {
        let (item, raw, rest) = first(inside)?;
        found.push((item, raw));
        inside = rest;
    }
    Ok(found)
}

/// The first item, its own bytes, and what stands behind it.
fn first(bytes: &[u8]) -> Result<(Item<'_>, &[u8], &[u8]), Malformed> {
    let (head, behind) = bytes.split_first().ok_or(Malformed)?;
    let (is_list, head_bytes, length) = match head {
        0..=0x7f => return Ok((Item::Bytes(&bytes[..1]), &bytes[..1], behind)),
        0x80..=0xb7 => (false, 1, usize::from(head - 0x80)),
        0xb8..=0xbf => (false, usize::from(head - 0xb7) + 1, long(behind, head - 0xb7)?),
        0xc0..=0xf7 => (true, 1, usize::from(head - 0xc0)),
        0xf8..=0xff => (true, usize::from(head - 0xf7) + 1, long(behind, head - 0xf7)?),
    };
    let end = head_bytes.checked_add(length).ok_or(Malformed)?;
    let (raw, rest) = bytes.split_at_checked(end).ok_or(Malformed)?;
    let inside = &raw[head_bytes..];
    // One small byte stands for itself.
    if !is_list && matches!(inside, [0..=0x7f]) {
        return Err(Malformed);
    }
    let item = match is_list {
        true => Item::List(inside),
        false => Item::Bytes(inside),
    };
    Ok((item, raw, rest))
}

/// A length of so many bytes, which must not fit into fewer.
fn long(behind: &[u8], count: u8) -> Result<usize, Malformed> {
    let digits = behind.get(..usize::from(count)).ok_or(Malformed)?;
    if digits.len() > 4 || digits.first() == Some(&0) {
        return Err(Malformed);
    }
    let length = digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit));
    match length {
        0..=55 => Err(Malformed),
        length => Ok(length),
    }
}

impl<'a> Item<'a> {
    /// Bytes of any length.
    pub(super) fn bytes(self) -> Result<&'a [u8], Malformed> {
        match self {
            Item::Bytes(bytes) => Ok(bytes),
            Item::List(_) => Err(Malformed),
        }
    }

    /// Bytes of one length.
    pub(super) fn exactly<const N: usize>(self) -> Result<[u8; N], Malformed> {
        self.bytes()?.try_into().map_err(|_| Malformed)
    }

    /// The items of a list.
    pub(super) fn list(self) -> Result<Vec<Item<'a>>, Malformed> {
        match self {
            Item::List(inside) => items(inside),
            Item::Bytes(_) => Err(Malformed),
        }
    }

    /// A number, of at most 32 bytes and with no zero in front.
    pub(super) fn number(self) -> Result<[u8; 32], Malformed> {
        let digits = self.bytes()?;
        let mut number = [0; 32];
        let place = number.len().checked_sub(digits.len()).ok_or(Malformed)?;
        if digits.first() == Some(&0) {
            return Err(Malformed);
        }
        number[place..].copy_from_slice(digits);
        Ok(number)
    }

    /// A number below 2^64.
    pub(super) fn count(self) -> Result<u64, Malformed> {
        let number = self.number()?;
        let (above, count) = number.split_last_chunk::<8>().ok_or(Malformed)?;
        match above.iter().all(|byte| *byte == 0) {
            true => Ok(u64::from_be_bytes(*count)),
            false => Err(Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ethers_core::utils::rlp::RlpStream;
    use proptest::prelude::*;

    #[test]
    fn what_has_a_shorter_form_is_refused() {
        let long = |head: &[u8], count: usize| [head, &vec![7; count]].concat();
        let good = [
            vec![0x80],
            vec![0x7f],
            vec![0x81, 0x80],
            vec![0xc0],
            long(&[0xb8, 56], 56),
        ];
        for bytes in good {
            whole(&bytes).unwrap();
        }
        for bad in [
            vec![],
            vec![0x81, 0x7f],
            vec![0x81],
            vec![0xb8, 55],
            long(&[0xb8, 55], 55),
            long(&[0xb9, 0, 56], 56),
            long(&[0xb8, 56], 55),
            long(&[0xbf, 255, 255, 255, 255, 255, 255, 255, 255], 9),
            vec![0x80, 0x80],
            vec![0xc1],
        ] {
            assert_eq!(whole(&bad), Err(Malformed), "{bad:x?}");
        }
        assert_eq!(list(&[0xc1, 0xc1]), Err(Malformed));
        assert_eq!(Item::Bytes(&[0, 1]).number(), Err(Malformed));
        assert_eq!(Item::Bytes(&[1, 0]).count(), Ok(256));
        assert_eq!(Item::Bytes(&[1; 9]).count(), Err(Malformed));
    }

    proptest! {
        #[test]
        fn what_the_library_writes_is_read(parts in prop::collection::vec(
            prop::collection::vec(any::<u8>(), 0..300), 0..20)) {
            let mut stream = RlpStream::new_list(parts.len());
            for part in &parts {
                stream.append(&part.as_slice());
            }
            let out = stream.out();
            let read: Vec<Vec<u8>> =
                list(&out).unwrap().into_iter().map(|item| item.bytes().unwrap().to_vec()).collect();
            prop_assert_eq!(read, parts);
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(items) = list(&bytes) {
                for item in items {
                    let _ = (item.list(), item.number(), item.count(), item.exactly::<32>());
                }
            }
        }
    }
}
