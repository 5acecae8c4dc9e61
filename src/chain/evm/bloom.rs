//! Log blooms: 2,048 bits in a header that say which contracts and topics the block's logs may have (Yellow
//! Paper, section 4.3.1). They name what a list of logs may have left out, and nothing more: other logs set
//! the same bits.

use super::answers::LogFields;
use super::fields::{Account, BloomBits, Word};
use ethers_core::abi::ethereum_types::{Bloom, BloomInput};

impl BloomBits {
    fn bloom(&self) -> Bloom {
        Bloom(*self.0)
    }

    /// May the block hold a log of this contract with this topic?
    pub fn may_hold(&self, contract: &Account, topic: &Word) -> bool {
        let bloom = self.bloom();
        bloom.contains_input(BloomInput::Raw(&contract.0)) && bloom.contains_input(BloomInput::Raw(&topic.0))
    }

    /// Do these logs set every bit that is set here? Logs that set more are no contradiction: some chains
    /// leave system transactions out of their bloom.
    ///
    /// # Errors
    /// Which field of a log cannot be read.
    pub fn is_explained_by<'l>(&self, logs: impl IntoIterator<Item = &'l LogFields>) -> Result<bool, String> {
        let mut found = Bloom::zero();
        for log in logs {
            let fault = |name: &str, fault: Option<String>| format!("{name} {}", fault.unwrap_or_default());
            let contract = log
                .address
                .get()
                .ok_or_else(|| fault("address", log.address.fault()))?;
            found.accrue(BloomInput::Raw(&contract.0));
            for topic in log.topics.as_ref().ok_or("topics are missing")? {
                let topic = topic.get().ok_or_else(|| fault("topic", topic.fault()))?;
                found.accrue(BloomInput::Raw(&topic.0));
            }
        }
        Ok(found.contains_bloom(&self.bloom()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::evm::fields::{Field, FromText as _};
    use crate::chain::evm::transfer::TRANSFER;
    use ethers_core::utils::keccak256;
    use proptest::prelude::*;
    use serde_json::Value;

    /// Three times eleven bits of the hash, from the left, count bits from the right.
    fn set(bits: &mut [u8; 256], input: &[u8]) {
        let hash = keccak256(input);
        for pair in hash.chunks(2).take(3) {
            let bit = (usize::from(pair[0]) << 8 | usize::from(pair[1])) & 0x7ff;
            bits[255 - bit / 8] |= 1 << (bit % 8);
        }
    }

    fn log(contract: u8, topics: &[Word]) -> LogFields {
        LogFields {
            address: Field::Is(Account([contract; 20])),
            topics: Some(topics.iter().map(|topic| Field::Is(*topic)).collect()),
            ..LogFields::default()
        }
    }

    fn of_logs(logs: &[LogFields]) -> BloomBits {
        let mut bits = Box::new([0; 256]);
        for log in logs {
            set(&mut bits, &log.address.get().unwrap().0);
            for topic in log.topics.iter().flatten() {
                set(&mut bits, &topic.get().unwrap().0);
            }
        }
        BloomBits(bits)
    }

    #[test]
    fn the_topic_of_a_transfer_is_the_hash_of_its_signature() {
        assert_eq!(keccak256("Transfer(address,address,uint256)"), TRANSFER.0);
    }

    #[test]
    fn a_bloom_names_what_may_be_there() {
        let logs = [log(1, &[TRANSFER, Word([7; 32])]), log(2, &[Word([9; 32])])];
        let bloom = of_logs(&logs);
        assert!(bloom.may_hold(&Account([1; 20]), &TRANSFER));
        assert!(bloom.may_hold(&Account([2; 20]), &TRANSFER), "it says maybe");
        assert!(!bloom.may_hold(&Account([3; 20]), &TRANSFER));
        assert!(!bloom.may_hold(&Account([1; 20]), &Word([8; 32])));
        assert_eq!(bloom.is_explained_by(&logs), Ok(true));
        assert_eq!(bloom.is_explained_by(&logs[..1]), Ok(false));
        assert_eq!(
            of_logs(&logs[..1]).is_explained_by(&logs),
            Ok(true),
            "more is allowed"
        );
        assert_eq!(of_logs(&[]).is_explained_by(&[]), Ok(true));
        let unreadable = LogFields::default();
        assert!(bloom.is_explained_by([&unreadable]).is_err());
    }

    /// What Anvil says of a transaction that logs one transfer, and of its block, which holds one more log.
    #[test]
    fn the_bloom_of_a_real_receipt_is_that_of_its_logs() {
        let all: Vec<Value> =
            serde_json::from_str(include_str!("../../../tests/data/evm_shapes.json")).unwrap();
        let of = |name: &str| all.iter().find(|shape| shape["name"] == name).unwrap()["json"].clone();
        let bits = |json: &Value| BloomBits::from_text(json["logsBloom"].as_str().unwrap()).unwrap();
        let receipt = of("anvil mainnet-mode receipt");
        let logs: Vec<LogFields> = serde_json::from_value(receipt["logs"].clone()).unwrap();
        let bloom = bits(&receipt);
        assert_eq!(bloom, of_logs(&logs));
        assert_eq!(bloom.is_explained_by(&logs), Ok(true));
        assert_eq!(bloom.is_explained_by(&[]), Ok(false));
        let block = bits(&of("anvil mainnet-mode block"));
        assert!(block.may_hold(logs[0].address.get().unwrap(), &TRANSFER));
        assert_eq!(block.is_explained_by(&logs), Ok(false));
        assert!(!block.may_hold(&Account([9; 20]), &TRANSFER));
    }

    proptest! {
        #[test]
        fn a_bloom_never_denies_what_is_there(logs in prop::collection::vec((0..9_u8, 0..9_u8), 0..9)) {
            let made = |(contract, topic): &(u8, u8)| log(*contract, &[TRANSFER, Word([*topic; 32])]);
            let logs: Vec<LogFields> = logs.iter().map(made).collect();
            let bloom = of_logs(&logs);
            for log in &logs {
                let contract = log.address.get().unwrap();
                let topics = log.topics.iter().flatten();
                prop_assert!(topics.into_iter().all(|topic| bloom.may_hold(contract, topic.get().unwrap())));
            }
            prop_assert_eq!(bloom.is_explained_by(&logs), Ok(true));
        }
    }
}
