//! How candidates wait in the database for the header that proves their block: JSON of our own, read back
//! strictly.

use super::StoreError;
use super::codec::asset;
use crate::rules::{Amount, Ancestor, Asset, CandidateOutput, CandidateTx, Doubt, Outpoint, Script, Txid};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct StagedTx {
    txid: String,
    is_coinbase: bool,
    sender: Option<String>,
    is_failed: bool,
    inputs: Vec<(String, u64)>,
    outputs: Vec<StagedOutput>,
    ancestors: Vec<(String, Vec<(String, u64)>)>,
}

#[derive(Serialize, Deserialize)]
struct StagedOutput {
    vout: u64,
    script: String,
    /// A token's contract.
    contract: Option<String>,
    amount: String,
    from: Option<String>,
    doubt: Option<String>,
}

pub(super) fn encode(txs: &[CandidateTx]) -> Result<String, StoreError> {
    let inputs = |inputs: &[Outpoint]| {
        inputs
            .iter()
            .map(|input| (input.txid.to_string(), input.vout))
            .collect()
    };
    let staged: Vec<StagedTx> = txs
        .iter()
        .map(|tx| StagedTx {
            txid: tx.txid.to_string(),
            is_coinbase: tx.is_coinbase,
            sender: tx.sender.as_ref().map(|sender| const_hex::encode(&sender.0)),
            is_failed: tx.is_failed,
            inputs: inputs(&tx.inputs),
            outputs: tx.outputs.iter().map(stage).collect(),
            ancestors: tx
                .ancestors
                .iter()
                .map(|up| (up.txid.to_string(), inputs(&up.inputs)))
                .collect(),
        })
        .collect();
    serde_json::to_string(&staged).map_err(|error| StoreError::Corrupt(error.to_string()))
}

fn stage(output: &CandidateOutput) -> StagedOutput {
    StagedOutput {
        vout: output.vout,
        script: const_hex::encode(&output.script.0),
        contract: match &output.asset {
            Asset::Native => None,
            Asset::Token(contract) => Some(const_hex::encode(contract)),
        },
        amount: output.amount.to_string(),
        from: output.from.as_ref().map(|from| const_hex::encode(&from.0)),
        doubt: output.doubt.map(|doubt| doubt.word().to_owned()),
    }
}

pub(super) fn decode(text: &str) -> Result<Vec<CandidateTx>, StoreError> {
    let staged: Vec<StagedTx> =
        serde_json::from_str(text).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    staged.into_iter().map(unstage).collect()
}

fn unstage(tx: StagedTx) -> Result<CandidateTx, StoreError> {
    let ancestor = |(id, inputs): (String, Vec<(String, u64)>)| {
        Ok(Ancestor {
            txid: txid(&id)?,
            inputs: outpoints(inputs)?,
        })
    };
    Ok(CandidateTx {
        txid: txid(&tx.txid)?,
        is_coinbase: tx.is_coinbase,
        sender: tx.sender.map(|sender| script(&sender)).transpose()?,
        is_failed: tx.is_failed,
        inputs: outpoints(tx.inputs)?,
        outputs: tx
            .outputs
            .into_iter()
            .map(unstage_output)
            .collect::<Result<_, StoreError>>()?,
        ancestors: tx
            .ancestors
            .into_iter()
            .map(ancestor)
            .collect::<Result<_, StoreError>>()?,
    })
}

fn unstage_output(output: StagedOutput) -> Result<CandidateOutput, StoreError> {
    let contract = output.contract.map(|contract| bytes(&contract)).transpose()?;
    let doubt = output.doubt.map(|word| {
        Doubt::from_word(&word).ok_or_else(|| StoreError::Corrupt(format!("staged doubt {word:?}")))
    });
    Ok(CandidateOutput {
        vout: output.vout,
        script: script(&output.script)?,
        asset: asset(contract)?,
        amount: Amount::from_base_str(&output.amount)
            .map_err(|error| StoreError::Corrupt(error.to_string()))?,
        from: output.from.map(|from| script(&from)).transpose()?,
        doubt: doubt.transpose()?,
    })
}

fn bytes(hex: &str) -> Result<Vec<u8>, StoreError> {
    const_hex::decode(hex).map_err(|error| StoreError::Corrupt(error.to_string()))
}

fn script(hex: &str) -> Result<Script, StoreError> {
    Ok(Script(bytes(hex)?.into()))
}

fn txid(text: &str) -> Result<Txid, StoreError> {
    Txid::from_hex(text).ok_or_else(|| StoreError::Corrupt(format!("staged txid {text:?}")))
}

fn outpoints(list: Vec<(String, u64)>) -> Result<Vec<Outpoint>, StoreError> {
    list.into_iter()
        .map(|(id, vout)| {
            Ok(Outpoint {
                txid: txid(&id)?,
                vout,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_staged_is_read_back() {
        let input = Outpoint {
            txid: Txid([3; 32]),
            vout: 7,
        };
        let tx = CandidateTx {
            txid: Txid([1; 32]),
            is_coinbase: false,
            sender: Some(Script([7; 20].into())),
            is_failed: true,
            inputs: vec![input],
            outputs: vec![
                CandidateOutput {
                    vout: 2,
                    script: Script([0, 20].into()),
                    asset: Asset::Native,
                    amount: Amount::from_be_bytes([0xff; 32]),
                    from: None,
                    doubt: Some(Doubt::Status),
                },
                CandidateOutput {
                    vout: 3,
                    script: Script([0, 20].into()),
                    asset: Asset::Token([5; 20]),
                    amount: Amount::from_u64(1),
                    from: Some(Script([8; 20].into())),
                    doubt: None,
                },
            ],
            ancestors: vec![Ancestor {
                txid: Txid([9; 32]),
                inputs: vec![input],
            }],
        };
        assert_eq!(decode(&encode(std::slice::from_ref(&tx)).unwrap()).unwrap(), [tx]);
        assert!(decode("[{\"txid\":\"zz\"}]").is_err());
    }
}
