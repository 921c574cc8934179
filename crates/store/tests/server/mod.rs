//! A private PostgreSQL server for a test, and a proxy that can cut its connections.
#![allow(dead_code, unreachable_pub)] // not every test file uses all of it
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use kernelwise_store::fleet::{Listen, PrivateServer};

/// A server of its own directory, port and user, stopped when dropped.
pub struct Server {
    inner: PrivateServer,
    pub port: u16,
}

impl Server {
    /// Starts one, or says why this test is skipped.
    pub fn start() -> Option<Self> {
        Self::start_with(|_| vec![])
    }

    /// The same with settings made from its directory.
    pub fn start_with(settings: impl FnOnce(&Path) -> Vec<String>) -> Option<Self> {
        if PrivateServer::programs().is_none() {
            let why = "initdb and postgres were not found (Debian package postgresql)";
            kernelwise_testing::skip("postgres", why);
            return None;
        }
        let with = |data: &Path| {
            let usual = ["fsync=off", "autovacuum=off"].map(str::to_owned);
            usual.into_iter().chain(settings(data)).collect()
        };
        let inner = PrivateServer::start(Listen::Loopback, with).unwrap();
        let port = inner.port();
        Some(Self { inner, port })
    }

    /// Starts it, if it was stopped, and waits until it answers.
    pub fn run(&mut self) {
        self.inner.run().unwrap();
    }

    /// Stops it as a power cut would.
    pub fn stop(&mut self) {
        self.inner.stop();
    }

    /// The address for this user.
    pub fn url(&self, user: &str) -> String {
        self.inner.url(user)
    }

    /// The address of the owner through a proxy.
    pub fn url_through(&self, proxy: &Proxy) -> String {
        let (own, other) = (self.port.to_string(), proxy.port.to_string());
        self.url("owner").replace(&own, &other)
    }

    /// A connection of the owner's, to look behind the scenes.
    pub fn admin(&self) -> postgres::Client {
        postgres::Client::connect(&self.url("owner"), postgres::NoTls).unwrap()
    }

    pub fn count(&self, sql: &str) -> i64 {
        self.admin().query_one(sql, &[]).unwrap().get(0)
    }
}

/// What the certificate of a server is like.
#[derive(Clone, Copy, PartialEq)]
pub enum Certificate {
    /// Signed by an authority.
    Signed,
    /// Signed by itself, as Debian makes one.
    Itself,
    /// That of an authority, as PostgreSQL's manual makes one.
    Authority,
}

/// Makes a key and a certificate for 127.0.0.1 in the directory of a server, and gives those of whoever signed it; `None` without
/// `openssl`.
pub fn certificate(dir: &Path, like: Certificate) -> Option<Vec<u8>> {
    let openssl = |line: &str, more: &[&str]| -> Option<()> {
        let words = line.split(' ').chain(more.iter().copied());
        let output = Command::new("openssl")
            .args(words)
            .current_dir(dir)
            .output()
            .ok()?;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {said}");
        Some(())
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout";
    let name = ["-subj", "/CN=kernelwise-test"];
    let address = "subjectAltName=IP:127.0.0.1";
    match like {
        Certificate::Itself => openssl(
            &format!(
                "req -x509 -days 2 {key} server.key -out server.crt -addext {address} -addext basicConstraints=critical,CA:FALSE"
            ),
            &name,
        )?,
        Certificate::Authority => openssl(
            &format!("req -x509 -days 2 {key} server.key -out server.crt -addext {address}"),
            &name,
        )?,
        Certificate::Signed => {
            openssl(
                &format!("req -x509 -days 2 {key} ca.key -out ca.crt"),
                &["-subj", "/CN=authority"],
            )?;
            openssl(&format!("req -new {key} server.key -out server.csr"), &name)?;
            fs::write(
                dir.join("extensions"),
                format!("{address}\nbasicConstraints=critical,CA:FALSE\n"),
            )
            .unwrap();
            openssl(
                "x509 -req -in server.csr -days 2 -CA ca.crt -CAkey ca.key -CAcreateserial -extfile extensions -out server.crt",
                &[],
            )?;
        }
    }
    fs::set_permissions(dir.join("server.key"), PermissionsExt::from_mode(0o600)).unwrap();
    let signer = match like {
        Certificate::Signed => "ca.crt",
        Certificate::Itself | Certificate::Authority => "server.crt",
    };
    Some(fs::read(dir.join(signer)).unwrap())
}

/// A server that speaks TLS, and the certificates of whoever signed its own. Says why a test is skipped.
pub fn encrypted(like: Certificate) -> Option<(Server, Vec<u8>)> {
    let mut pem = None;
    let server = Server::start_with(|dir| {
        pem = certificate(dir, like);
        pem.iter().map(|_| "ssl=on".to_owned()).collect()
    })?;
    if pem.is_none() {
        kernelwise_testing::skip("openssl", "no openssl to make a certificate with");
    }
    Some((server, pem?))
}

/// What happens at a commit.
enum AtCommit {
    /// The server gets it and answers, and the client does not hear of it.
    Cut,
    /// Something else, before the server gets it.
    Do(Mutex<Box<dyn FnMut() + Send>>),
}

/// Passes bytes between clients and a server, until a commit of a certain number, from 1, counted over all connections. Later ones
/// are let through.
pub struct Proxy {
    pub port: u16,
    commits: Arc<AtomicUsize>,
}

impl Proxy {
    /// Cuts the connection at that commit: the server does it and the client does not hear of it.
    pub fn cutting_at(server: u16, commit: usize) -> Self {
        Self::start(server, commit, AtCommit::Cut)
    }

    /// Does something when the commit was sent and the server has not seen it yet.
    pub fn doing_at(server: u16, commit: usize, what: impl FnMut() + Send + 'static) -> Self {
        Self::start(server, commit, AtCommit::Do(Mutex::new(Box::new(what))))
    }

    fn start(server: u16, commit: usize, what: AtCommit) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let commits = Arc::new(AtomicUsize::new(0));
        let (seen, what) = (commits.clone(), Arc::new(what));
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else {
                    continue;
                };
                let (seen, what) = (seen.clone(), what.clone());
                std::thread::spawn(move || pass(client, server, &seen, commit, &what));
            }
        });
        Self { port, commits }
    }

    pub fn commits(&self) -> usize {
        self.commits.load(Ordering::SeqCst)
    }
}

fn pass(client: TcpStream, server: TcpStream, seen: &AtomicUsize, commit: usize, what: &AtCommit) {
    let (mut from_client, mut to_server) =
        (client.try_clone().unwrap(), server.try_clone().unwrap());
    let (mut from_server, mut to_client) = (server, client);
    let silent = Arc::new(AtomicBool::new(false));
    let deaf = silent.clone();
    let answers = std::thread::spawn(move || {
        let (mut buffer, mut unheard) = ([0; 1 << 16], Vec::new());
        while let Ok(length @ 1..) = from_server.read(&mut buffer) {
            if deaf.load(Ordering::SeqCst) {
                // Other answers may come before that to the commit; once that is here, it was done.
                unheard.extend_from_slice(&buffer[..length]);
                if unheard.windows(6).any(|window| window == b"COMMIT") {
                    break;
                }
                continue;
            }
            if to_client.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
        let _ = to_client.shutdown(Shutdown::Both);
        let _ = from_server.shutdown(Shutdown::Both);
    });
    let mut buffer = [0; 1 << 16];
    while let Ok(length @ 1..) = from_client.read(&mut buffer) {
        let bytes = &buffer[..length];
        if bytes.windows(6).any(|window| window == b"COMMIT")
            && seen.fetch_add(1, Ordering::SeqCst) + 1 == commit
        {
            match what {
                AtCommit::Cut => silent.store(true, Ordering::SeqCst),
                AtCommit::Do(what) => what.lock().unwrap()(),
            }
        }
        if to_server.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = to_server.shutdown(Shutdown::Both);
    let _ = answers.join();
}
