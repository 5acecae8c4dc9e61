//! How candidates wait in the database for the header that proves their block: JSON of our own, read back
//! strictly.

use super::StoreError;
use crate::rules::{Amount, Ancestor, CandidateOutput, CandidateTx, Outpoint, Script, Txid};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct StagedTx {
    txid: String,
    is_coinbase: bool,
    inputs: Vec<(String, u64)>,
    outputs: Vec<(u64, String, String)>,
    ancestors: Vec<(String, Vec<(String, u64)>)>,
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
            inputs: inputs(&tx.inputs),
            outputs: tx
                .outputs
                .iter()
                .map(|output| {
                    (
                        output.vout,
                        const_hex::encode(&output.script.0),
                        output.amount.to_string(),
                    )
                })
                .collect(),
            ancestors: tx
                .ancestors
                .iter()
                .map(|up| (up.txid.to_string(), inputs(&up.inputs)))
                .collect(),
        })
        .collect();
    serde_json::to_string(&staged).map_err(|error| StoreError::Corrupt(error.to_string()))
}

pub(super) fn decode(text: &str) -> Result<Vec<CandidateTx>, StoreError> {
    let staged: Vec<StagedTx> =
        serde_json::from_str(text).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    staged.into_iter().map(unstage).collect()
}

fn unstage(tx: StagedTx) -> Result<CandidateTx, StoreError> {
    let output = |(vout, script, amount): (u64, String, String)| {
        let script = const_hex::decode(script).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let amount =
            Amount::from_base_str(&amount).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        Ok(CandidateOutput {
            vout,
            script: Script(script.into()),
            amount,
        })
    };
    let ancestor = |(id, inputs): (String, Vec<(String, u64)>)| {
        Ok(Ancestor {
            txid: txid(&id)?,
            inputs: outpoints(inputs)?,
        })
    };
    Ok(CandidateTx {
        txid: txid(&tx.txid)?,
        is_coinbase: tx.is_coinbase,
        inputs: outpoints(tx.inputs)?,
        outputs: tx
            .outputs
            .into_iter()
            .map(output)
            .collect::<Result<_, StoreError>>()?,
        ancestors: tx
            .ancestors
            .into_iter()
            .map(ancestor)
            .collect::<Result<_, StoreError>>()?,
    })
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
            inputs: vec![input],
            outputs: vec![CandidateOutput {
                vout: 2,
                script: Script([0, 20].into()),
                amount: Amount::from_be_bytes([0xff; 32]),
            }],
            ancestors: vec![Ancestor {
                txid: Txid([9; 32]),
                inputs: vec![input],
            }],
        };
        assert_eq!(decode(&encode(std::slice::from_ref(&tx)).unwrap()).unwrap(), [tx]);
        assert!(decode("[{\"txid\":\"zz\"}]").is_err());
    }
}
