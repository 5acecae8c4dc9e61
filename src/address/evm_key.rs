//! The addresses of an account key on EVM chains, derived in two ways that share no arithmetic: libsecp256k1
//! by way of the Bitcoin library, and here by BIP 32's own words over a pure Rust curve.

use super::extended::Extended;
use super::{EvmAddress, SourceError};
use bitcoincore_rpc::bitcoin::NetworkKind;
use bitcoincore_rpc::bitcoin::bip32::{ChildNumber, Xpub};
use bitcoincore_rpc::bitcoin::secp256k1::{Secp256k1, VerifyOnly};
use ethers_core::k256::elliptic_curve::PrimeField as _;
use ethers_core::k256::elliptic_curve::sec1::{FromEncodedPoint as _, ToEncodedPoint as _};
use ethers_core::k256::{AffinePoint, EncodedPoint, FieldBytes, ProjectivePoint, Scalar};
use ethers_core::utils::keccak256;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha512;

/// The account's branch to receive on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvmKey {
    branch: Xpub,
    /// For the second way: key and chain code of the account, and the steps down to the branch.
    raw: ([u8; 33], [u8; 32], Vec<u32>),
}

impl EvmKey {
    pub(super) fn parse(text: &str) -> Result<EvmKey, SourceError> {
        let extended = Extended::parse(text)?;
        if extended.key.network != NetworkKind::Main || extended.says.is_some() {
            return Err(SourceError::NotForEvm);
        }
        let steps = extended.branch()?;
        let path: Vec<ChildNumber> = steps
            .iter()
            .map(|step| ChildNumber::from_normal_idx(*step))
            .collect::<Result<_, _>>()
            .map_err(|_| SourceError::NoKey)?;
        let branch = extended
            .key
            .derive_pub(&Secp256k1::verification_only(), &path)
            .map_err(|_| SourceError::NoKey)?;
        let (mut key, mut code) = ([0; 33], [0; 32]);
        key.copy_from_slice(&extended.bytes[45..]);
        code.copy_from_slice(&extended.bytes[13..45]);
        Ok(EvmKey {
            branch,
            raw: (key, code, steps.to_vec()),
        })
    }

    /// What the key is, in one spelling.
    pub(super) fn text(&self) -> String {
        self.branch.to_string()
    }

    /// The address of an index; `None` for one that BIP 32 leaves out, which happens to nobody.
    pub(super) fn address(&self, secp: &Secp256k1<VerifyOnly>, index: u32) -> Option<EvmAddress> {
        let child = ChildNumber::from_normal_idx(index).ok()?;
        let key = self.branch.derive_pub(secp, &[child]).ok()?.public_key;
        Some(of_point(&key.serialize_uncompressed()))
    }

    /// The same in another way.
    pub(super) fn address_again(&self, index: u32) -> Option<EvmAddress> {
        let (mut key, mut code) = (self.raw.0, self.raw.1);
        for step in self.raw.2.iter().chain([&index]) {
            (key, code) = child(&key, &code, *step)?;
        }
        let point = AffinePoint::from_encoded_point(&EncodedPoint::from_bytes(key).ok()?);
        let point = Option::<AffinePoint>::from(point)?.to_encoded_point(false);
        Some(of_point(&point.as_bytes().try_into().ok()?))
    }
}

/// CKDpub of BIP 32.
fn child(key: &[u8; 33], code: &[u8; 32], index: u32) -> Option<([u8; 33], [u8; 32])> {
    let mut mac = Hmac::<Sha512>::new_from_slice(code).ok()?;
    mac.update(key);
    mac.update(&index.to_be_bytes());
    let out = mac.finalize().into_bytes();
    let (left, right) = out.split_at(32);
    let tweak: [u8; 32] = left.try_into().ok()?;
    let tweak = Option::<Scalar>::from(Scalar::from_repr(FieldBytes::from(tweak)))?;
    let parent = AffinePoint::from_encoded_point(&EncodedPoint::from_bytes(key).ok()?);
    let parent = ProjectivePoint::from(Option::<AffinePoint>::from(parent)?);
    let point = (ProjectivePoint::GENERATOR * tweak + parent).to_affine();
    let bytes = point.to_encoded_point(true);
    Some((bytes.as_bytes().try_into().ok()?, right.try_into().ok()?))
}

/// The last 20 bytes of the hash of both coordinates.
fn of_point(point: &[u8; 65]) -> EvmAddress {
    let mut address = [0; 20];
    address.copy_from_slice(&keccak256(&point[1..])[12..]);
    EvmAddress(address)
}
