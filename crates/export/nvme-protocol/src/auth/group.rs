//! Diffie-Hellman in the finite fields of RFC 7919: what both sides know after an exchange, and a
//! listener does not.
//!
//! What must stay true: an exponent serves one exchange, is never shown, and takes as long
//! whichever its bits are; of the other side's values none is taken that gives the result away (0,
//! 1, p - 1, p and above). Shared values have the length of p, with leading zeros. Base 2.0,
//! 8.13.5.3 and 8.13.5.4 (DH value, augmented challenge).

use super::secret::Hash;
use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use std::fmt;

/// Who may try secrets offline: everybody who listens, or nobody. Weakest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Group {
    /// No Diffie-Hellman: somebody who listens can try secrets at leisure.
    #[default]
    Null,
    /// A prime of 2,048 bits.
    Ffdhe2048,
    /// A prime of 3,072 bits.
    Ffdhe3072,
    /// A prime of 4,096 bits.
    Ffdhe4096,
    /// A prime of 6,144 bits.
    Ffdhe6144,
    /// A prime of 8,192 bits.
    Ffdhe8192,
}

/// Longest exponent, in bytes.
pub const EXPONENT_BYTES_MAX: usize = 64;

/// The binary digits of e that the longest prime has, as hexadecimal digits; shorter primes have
/// the first of them. `vectors.py` beside the tests computes them anew.
const E_DIGITS: &str = "\
    adf85458a2bb4a9aafdc5620273d3cf1d8b9c583ce2d3695a9e13641146433fbcc939dce249b3ef97d2fe3\
    63630c75d8f681b202aec4617ad3df1ed5d5fd65612433f51f5f066ed0856365553ded1af3b557135e7f57\
    c935984f0c70e0e68b77e2a689daf3efe8721df158a136ade73530acca4f483a797abc0ab182b324fb61d1\
    08a94bb2c8e3fbb96adab760d7f4681d4f42a3de394df4ae56ede76372bb190b07a7c8ee0a6d709e02fce1\
    cdf7e2ecc03404cd28342f619172fe9ce98583ff8e4f1232eef28183c3fe3b1b4c6fad733bb5fcbc2ec220\
    05c58ef1837d1683b2c6f34a26c1b2effa886b4238611fcfdcde355b3b6519035bbc34f4def99c023861b4\
    6fc9d6e6c9077ad91d2691f7f7ee598cb0fac186d91caefe130985139270b4130c93bc437944f4fd4452e2\
    d74dd364f2e21e71f54bff5cae82ab9c9df69ee86d2bc522363a0dabc521979b0deada1dbf9a42d5c4484e\
    0abcd06bfa53ddef3c1b20ee3fd59d7c25e41d2b669e1ef16e6f52c3164df4fb7930e9e4e58857b6ac7d5f\
    42d69f6d187763cf1d5503400487f55ba57e31cc7a7135c886efb4318aed6a1e012d9e6832a907600a9181\
    30c46dc778f971ad0038092999a333cb8b7a1a1db93d7140003c2a4ecea9f98d0acc0a8291cdcec97dcf8e\
    c9b55a7f88a46b4db5a851f44182e1c68a007e5e0dd9020bfd64b645036c7a4e677d2c38532a3a23ba4442\
    caf53ea63bb454329b7624c8917bdd64b1c0fd4cb38e8c334c701c3acdad0657fccfec719b1f5c3e4e4604\
    1f388147fb4cfdb477a52471f7a9a96910b855322edb6340d8a00ef092350511e30abec1fff9e3a26e7fb2\
    9f8c183023c3587e38da0077d9b4763e4e4b94b2bbc194c6651e77caf992eeaac0232a281bf6b3a739c122\
    6116820ae8db5847a67cbef9c9091b462d538cd72b03746ae77f5e62292c311562a846505dc82db854338a\
    e49f5235c95b91178ccf2dd5cacef403ec9d1810c6272b045b3b71f9dc6b80d63fdd4a8e9adb1e6962a695\
    26d43161c1a41d570d7938dad4a40e329ccff46aaa36ad004cf600c8381e425a31d951ae64fdb23fcec950\
    9d43687feb69edd1cc5e0b8cc3bdf64b10ef86b63142a3ab8829555b2f747c932665cb2c0f1cc01bd70229\
    388839d2af05e454504ac78b7582822846c0ba35c35f5c59160cc046fd8251541fc68c9c86b022bb709987\
    6a460e7451a8a93109703fee1c217e6c3826e52c51aa691e0e423cfc99e9e31650c1217b624816cdad9a95\
    f9d5b8019488d9c0a0a1fe3075a577e23183f81d4a3f2fa4571efc8ce0ba8a4fe8b6855dfe72b0a66eded2\
    fbabfbe58a30fafabe1c5d71a87e2f741ef8c1fe86fea6bbfde530677f0d97d11d49f7a8443d0822e506a9\
    f4614e011e2a94838ff88cd68c8bb7c51eef6d";

impl Group {
    /// All of them, the weakest first.
    pub const ALL: [Group; 6] = [
        Group::Null,
        Group::Ffdhe2048,
        Group::Ffdhe3072,
        Group::Ffdhe4096,
        Group::Ffdhe6144,
        Group::Ffdhe8192,
    ];

    /// DHgID.
    pub fn code(self) -> u8 {
        self.facts().0
    }

    /// The group of this code.
    pub fn from_code(code: u8) -> Option<Group> {
        Group::ALL.into_iter().find(|group| group.code() == code)
    }

    /// Its name in configurations.
    pub fn name(self) -> &'static str {
        self.facts().1
    }

    /// The group of this name.
    pub fn from_name(name: &str) -> Option<Group> {
        Group::ALL.into_iter().find(|group| group.name() == name)
    }

    /// Length of its values, in bytes.
    pub fn bytes(self) -> usize {
        self.facts().2
    }

    /// Code, name, bytes of a value, what RFC 7919 adds to the digits of e, bytes of an exponent:
    /// twice the strength of the group, and no less than RFC 7919, A.1 to A.5, says.
    fn facts(self) -> (u8, &'static str, usize, u32, usize) {
        match self {
            Group::Null => (0, "none", 0, 0, 0),
            Group::Ffdhe2048 => (1, "ffdhe2048", 256, 560_316, 32),
            Group::Ffdhe3072 => (2, "ffdhe3072", 384, 2_625_351, 40),
            Group::Ffdhe4096 => (3, "ffdhe4096", 512, 5_736_041, 48),
            Group::Ffdhe6144 => (4, "ffdhe6144", 768, 15_705_020, 56),
            Group::Ffdhe8192 => (5, "ffdhe8192", 1024, 10_965_728, EXPONENT_BYTES_MAX),
        }
    }

    fn bits(self) -> u32 {
        u32::try_from(self.bytes() * 8).expect("8192 at most")
    }

    /// p = 2^b - 2^(b-64) + ([2^(b-130) e] + X) 2^64 - 1: 64 ones, digits of e with X - 1 added, 64
    /// ones.
    fn prime(self) -> Odd<BoxedUint> {
        let ones = "f".repeat(16);
        let digits = &E_DIGITS[..(self.bytes() - 16) * 2];
        let text = format!("{ones}{digits}{ones}");
        let prime = BoxedUint::from_be_hex(&text, self.bits()).into_option();
        let added = self.number(&u64::from(self.facts().3 - 1).to_be_bytes()).shl(64);
        let prime = prime.expect("hexadecimal digits").wrapping_add(&added);
        prime.into_odd().into_option().expect("it ends with a one")
    }

    /// A number, big-endian and no longer than p.
    fn number(self, bytes: &[u8]) -> BoxedUint {
        BoxedUint::from_be_slice(bytes, self.bits()).expect("no longer than p")
    }

    /// The value of the other side, if it may be one.
    fn public(self, value: &[u8], prime: &BoxedUint) -> Option<BoxedUint> {
        if value.len() != self.bytes() {
            return None;
        }
        let (value, one) = (self.number(value), self.number(&[1]));
        (value > one && value < prime.wrapping_sub(&one)).then_some(value)
    }
}

/// What one side of one exchange keeps to itself.
#[derive(Clone)]
pub struct Exponent {
    group: Group,
    value: BoxedUint,
}

impl Exponent {
    /// An exponent out of random bytes; `None` for the NULL group, which needs none.
    pub fn new(group: Group, random: &[u8; EXPONENT_BYTES_MAX]) -> Option<Exponent> {
        let bytes = group.facts().4;
        if group == Group::Null {
            return None;
        }
        let bits = u32::try_from(bytes * 8).expect("512 at most");
        let value = BoxedUint::from_be_slice(&random[..bytes], bits).expect("as long");
        Some(Exponent { group, value })
    }

    /// The group that it belongs to.
    pub fn group(&self) -> Group {
        self.group
    }

    /// What the other side is told: 2^x mod p.
    pub fn public(&self) -> Vec<u8> {
        self.power(self.group.number(&[2]), self.group.prime())
    }

    /// The key that both sides now have: the hash of y^x mod p, where y is the other side's value.
    /// `None` if that is none.
    pub fn session_key(&self, hash: Hash, value: &[u8]) -> Option<Vec<u8>> {
        let prime = self.group.prime();
        let value = self.group.public(value, &prime)?;
        Some(hash.of(&self.power(value, prime)))
    }

    fn power(&self, base: BoxedUint, prime: Odd<BoxedUint>) -> Vec<u8> {
        // The prime is no secret.
        let field = BoxedMontyParams::new_vartime(prime);
        let power = BoxedMontyForm::new(base, &field).pow(&self.value);
        power.retrieve().to_be_bytes().into_vec()
    }
}

impl fmt::Debug for Exponent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exponent({:?}, ..)", self.group)
    }
}
