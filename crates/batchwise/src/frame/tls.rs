//! Whom to trust, where this machine asks others by HTTPS.

use ureq::tls::{PemItem, RootCerts, parse_pem};

/// The certificates of a file, and no others.
pub fn roots(pem: &[u8]) -> RootCerts {
    let certificates = parse_pem(pem).filter_map(|item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    });
    RootCerts::from(certificates.collect::<Vec<_>>())
}
