//! Encryption, by Rust alone. The server's certificate is always verified, for its name too.

use std::error::Error as _;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::FleetError;

/// Names a PEM file with the authorities that are believed.
pub(super) const AUTHORITIES: &str = "KERNELWISE_DATABASE_CA";

const NAME_AUTHORITY: &str = "name a PEM file with its authority in KERNELWISE_DATABASE_CA, or write sslmode=disable in the address of a \
    server on this machine";

/// Connects by the authorities given, or those of the file that the environment names, or the operating system's.
pub(super) fn connector(
    config: &Config,
    authorities: Option<&[u8]>,
) -> Result<MakeRustlsConnect, FleetError> {
    let bad = |reason: String| FleetError::Certificates { reason };
    let mut roots = RootCertStore::empty();
    // Reading authorities takes a while, and one that is missing is none of the business of whoever does not want TLS.
    if wants_tls(config) {
        let file = std::env::var_os(AUTHORITIES).filter(|name| !name.is_empty());
        match (authorities, file.map(PathBuf::from)) {
            (Some(pem), _) => add(&mut roots, pem).map_err(bad)?,
            (None, Some(file)) => {
                let pem = std::fs::read(&file).map_err(|e| e.to_string());
                let added = pem.and_then(|pem| add(&mut roots, &pem));
                added.map_err(|e| bad(format!("{AUTHORITIES} = {}: {e}", file.display())))?;
            }
            (None, None) => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| bad(e.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(tls))
}

fn wants_tls(config: &Config) -> bool {
    let remote = |host: &Host| matches!(host, Host::Tcp(_));
    config.get_ssl_mode() != SslMode::Disable && config.get_hosts().iter().any(remote)
}

fn add(roots: &mut RootCertStore, pem: &[u8]) -> Result<(), String> {
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|e| e.to_string())?;
        roots.add(certificate).map_err(|e| e.to_string())?;
    }
    match roots.is_empty() {
        true => Err("there is no certificate in it".into()),
        false => Ok(()),
    }
}

/// What is wrong with the encryption, and what to do; `None` if it is something else.
pub(super) fn trouble(error: &tokio_postgres::Error) -> Option<(String, &'static str)> {
    let cause = error.source()?;
    // How `tokio_postgres` says that TLS is required and not offered.
    if cause.to_string() == "server does not support TLS" {
        let remedy = "switch it on there, or write sslmode=disable in the address of a server on this machine";
        return Some((cause.to_string(), remedy));
    }
    let inner = cause.downcast_ref::<std::io::Error>()?.get_ref()?;
    let error = inner.downcast_ref::<rustls::Error>()?;
    let remedy = match error {
        rustls::Error::InvalidCertificate(certificate) => match certificate {
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                "connect by a name that its subjectAltName lists"
            }
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => {
                "renew it, or set the clock of this machine"
            }
            CertificateError::Other(_) => {
                "it is that of an authority, or damaged: give the server one that the authority signed, as docs/fleet.md shows"
            }
            _ => NAME_AUTHORITY,
        },
        _ => NAME_AUTHORITY,
    };
    Some((error.to_string(), remedy))
}
