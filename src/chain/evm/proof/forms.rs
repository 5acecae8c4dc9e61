//! Receipts and transactions in the form in which they are hashed, as far as they say who was paid; and who
//! signed a transaction.

use crate::chain::evm::rlp::{self, Item, Malformed};
use crate::rules::Amount;
use ethers_core::types::{H256, Signature, U256};
use ethers_core::utils::keccak256;
use ethers_core::utils::rlp::RlpStream;

/// The type of a transaction or receipt, and the list behind it.
fn typed(bytes: &[u8]) -> Result<(u8, &[u8]), Malformed> {
    match bytes.split_first() {
        Some((kind @ 1..=0x7f, behind)) => Ok((*kind, behind)),
        Some(_) => Ok((0, bytes)),
        None => Err(Malformed),
    }
}

/// One log.
pub(super) struct Log<'a> {
    pub(super) contract: [u8; 20],
    pub(super) topics: Vec<[u8; 32]>,
    pub(super) data: &'a [u8],
}

/// What became of a transaction.
pub(super) struct Receipt<'a> {
    pub(super) status: &'a [u8],
    pub(super) logs: Vec<Log<'a>>,
}

impl<'a> Receipt<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Result<Receipt<'a>, Malformed> {
        let (_, list) = typed(bytes)?;
        let [status, _, _, logs] = rlp::list(list)?[..] else {
            return Err(Malformed);
        };
        let log = |log: Item<'a>| match log.list()?[..] {
            [contract, topics, data] => Ok(Log {
                contract: contract.exactly()?,
                topics: topics
                    .list()?
                    .into_iter()
                    .map(Item::exactly)
                    .collect::<Result<_, _>>()?,
                data: data.bytes()?,
            }),
            _ => Err(Malformed),
        };
        Ok(Receipt {
            status: status.bytes()?,
            logs: logs.list()?.into_iter().map(log).collect::<Result<_, _>>()?,
        })
    }
}

/// A signed transaction, as far as it says who is paid.
pub(super) struct Transaction<'a> {
    kind: u8,
    /// Of which chain, in decimal; the oldest ones do not say.
    pub(super) chain: Option<String>,
    nonce: &'a [u8],
    to: &'a [u8],
    pub(super) value: Amount,
    /// What is signed, each item as it stands.
    signed: Vec<&'a [u8]>,
    /// `v` or `yParity`, `r`, `s`.
    signature: [[u8; 32]; 3],
}

impl<'a> Transaction<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Result<Transaction<'a>, Malformed> {
        let (kind, list) = typed(bytes)?;
        let Item::List(inside) = rlp::whole(list)? else {
            return Err(Malformed);
        };
        let items = rlp::raw_items(inside)?;
        let item = |place: usize| items.get(place).map(|(item, _)| *item).ok_or(Malformed);
        let (nonce, to) = match kind {
            0 => (0, 3),
            1 => (1, 4),
            2..=4 => (1, 5),
            _ => return Err(Malformed),
        };
        let last = items.len().checked_sub(3).ok_or(Malformed)?;
        let signature = [
            item(last)?.number()?,
            item(last + 1)?.number()?,
            item(last + 2)?.number()?,
        ];
        let chain = match kind {
            0 => {
                let v = U256::from_big_endian(&signature[0]);
                (v >= U256::from(35)).then(|| ((v - 35) / 2).to_string())
            }
            _ => Some(U256::from_big_endian(&item(0)?.number()?).to_string()),
        };
        Ok(Transaction {
            kind,
            chain,
            nonce: item(nonce)?.bytes()?,
            to: item(to)?.bytes()?,
            value: Amount::from_be_bytes(item(to + 1)?.number()?),
            signed: items[..last].iter().map(|(_, raw)| *raw).collect(),
            signature,
        })
    }

    /// Who gets its value: whom it names, or the contract that it makes.
    pub(super) fn payee(&self) -> Option<[u8; 20]> {
        match self.to {
            [] => self.creation(),
            to => to.try_into().ok(),
        }
    }

    /// The address of the contract that it makes, which follows from its sender and nonce.
    fn creation(&self) -> Option<[u8; 20]> {
        let mut stream = RlpStream::new_list(2);
        stream.append(&self.sender()?.as_slice()).append(&self.nonce);
        keccak256(stream.out())[12..].try_into().ok()
    }

    /// Whoever has signed it.
    pub(super) fn sender(&self) -> Option<[u8; 20]> {
        let [v, r, s] = self.signature.map(|number| U256::from_big_endian(&number));
        let mut stream = RlpStream::new();
        stream.begin_unbounded_list();
        for raw in &self.signed {
            stream.append_raw(raw, 1);
        }
        let is_odd = match (self.kind, &self.chain) {
            (0, Some(chain)) => {
                // EIP-155: the chain is signed too.
                let chain = U256::from_dec_str(chain).ok()?;
                let mut bytes = [0; 32];
                chain.to_big_endian(&mut bytes);
                let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
                stream
                    .append(&&bytes[zeros..])
                    .append_empty_data()
                    .append_empty_data();
                (v - 35) % 2 == U256::one()
            }
            (0, None) => v == U256::from(28),
            (_, _) => v == U256::one(),
        };
        stream.finalize_unbounded_list();
        let kind = (self.kind > 0).then_some(self.kind);
        let signed: Vec<u8> = kind.into_iter().chain(stream.out()).collect();
        let signature = Signature {
            r,
            s,
            v: 27 + u64::from(is_odd),
        };
        let sender = signature.recover(H256(keccak256(signed))).ok()?;
        Some(sender.0)
    }
}
