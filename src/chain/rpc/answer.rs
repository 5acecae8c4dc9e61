//! Questions and the answers to each of them.

use super::RpcError;
use super::envelope::shorten;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

/// One question.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The method.
    pub method: &'static str,
    /// A JSON array or object.
    pub params: Value,
}

impl Question {
    /// A question.
    pub fn new(method: &'static str, params: Value) -> Question {
        Question { method, params }
    }
}

/// The answer to one question of several.
#[derive(Debug)]
pub struct Answer {
    pub(super) method: &'static str,
    /// Of the node, for messages.
    pub(super) software: String,
    /// The reply repeats a secret of ours, so nothing of it is quoted.
    pub(super) is_hidden: bool,
    pub(super) result: Result<Box<RawValue>, RpcError>,
}

impl Answer {
    /// True where the node wants to be left alone instead of answering.
    pub fn is_limited(&self) -> bool {
        matches!(self.result, Err(RpcError::RateLimited { .. }))
    }

    /// The result as it came.
    ///
    /// # Errors
    /// Why there is none.
    pub fn raw(self) -> Result<Box<RawValue>, RpcError> {
        self.result
    }

    /// The result, decoded.
    ///
    /// # Errors
    /// Why there is none, or [`RpcError::Decode`].
    pub fn decode<T: DeserializeOwned>(self) -> Result<T, RpcError> {
        let decoded = decode(self.method, &self.result?, &self.software);
        decoded.map_err(|error| {
            if self.is_hidden {
                error.without_text()
            } else {
                error
            }
        })
    }
}

/// Decodes a result, and where that fails once more to say where.
pub(super) fn decode<T: DeserializeOwned>(
    method: &'static str,
    result: &RawValue,
    software: &str,
) -> Result<T, RpcError> {
    serde_json::from_str(result.get()).map_err(|error| {
        let (field, why) = locate::<T>(result).unwrap_or_else(|| (".".to_owned(), error.to_string()));
        RpcError::Decode {
            method,
            field: if field == "." {
                "the result".to_owned()
            } else {
                field
            },
            software: software.to_owned(),
            why: shorten(&why),
        }
    })
}

/// Decodes once more, now keeping track of where: the path costs time that only a failure is worth.
fn locate<'a, T: Deserialize<'a>>(result: &'a RawValue) -> Option<(String, String)> {
    let mut json = serde_json::Deserializer::from_str(result.get());
    let error = serde_path_to_error::deserialize::<_, T>(&mut json).err()?;
    Some((error.path().to_string(), error.inner().to_string()))
}
