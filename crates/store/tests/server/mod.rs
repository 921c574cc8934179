//! A private PostgreSQL server for a test, and a proxy that can cut its connections.
#![allow(dead_code, unreachable_pub)] // not every test file uses all of it
#![allow(clippy::unwrap_used)] // what fails to unwrap fails the test

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A server of its own directory, port and user, stopped when dropped.
pub struct Server {
    dir: tempfile::TempDir,
    bin: PathBuf,
    user: Option<(u32, u32)>,
    pub port: u16,
    process: Option<Child>,
    settings: Vec<String>,
}

/// Where the programs of a server are.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let mut dirs: Vec<PathBuf> = versions.flatten().map(|v| v.path().join("bin")).collect();
    dirs.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    dirs.extend(std::env::split_paths(&path));
    let complete = |dir: &PathBuf| {
        ["initdb", "postgres", "pg_ctl"]
            .iter()
            .all(|p| dir.join(p).is_file())
    };
    dirs.into_iter().rev().find(complete)
}

fn id(args: &[&str]) -> Option<u32> {
    let output = Command::new("id").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().parse().ok())?
}

impl Server {
    /// Starts one, or says why this test is skipped.
    pub fn start() -> Option<Self> {
        Self::start_with(|_| vec![])
    }

    /// The same with settings made from its directory.
    pub fn start_with(settings: impl FnOnce(&Path) -> Vec<String>) -> Option<Self> {
        let Some(bin) = programs() else {
            let why = "initdb, postgres and pg_ctl were not found (Debian package postgresql)";
            kernelwise_testing::skip("postgres", why);
            return None;
        };
        // The server refuses to run as root.
        let user = (id(&["-u"]) == Some(0)).then(|| {
            let name = if id(&["-u", "postgres"]).is_some() {
                "postgres"
            } else {
                "nobody"
            };
            (id(&["-u", name]).unwrap(), id(&["-g", name]).unwrap())
        });
        let dir = tempfile::tempdir().unwrap();
        if let Some((uid, gid)) = user {
            std::os::unix::fs::chown(dir.path(), Some(uid), Some(gid)).unwrap();
        }
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let mut server = Self {
            dir,
            bin,
            user,
            port,
            process: None,
            settings: vec![],
        };
        let data = server.data();
        let output = server
            .command("initdb")
            .args([
                "--no-sync",
                "--auth=trust",
                "--no-locale",
                "--encoding=UTF8",
                "--username=owner",
                "-D",
            ])
            .arg(&data)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        server.settings = settings(&data);
        if let Some((uid, gid)) = user {
            for entry in fs::read_dir(&data).unwrap() {
                std::os::unix::fs::chown(entry.unwrap().path(), Some(uid), Some(gid)).unwrap();
            }
        }
        server.run();
        Some(server)
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin.join(program));
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command.current_dir(self.dir.path());
        command
    }

    /// Starts it, if it was stopped, and waits until it answers.
    pub fn run(&mut self) {
        let mut command = self.command("postgres");
        command
            .arg("-D")
            .arg(self.data())
            .arg("-k")
            .arg(self.dir.path());
        command.arg("-p").arg(self.port.to_string());
        for setting in ["listen_addresses=127.0.0.1", "fsync=off", "autovacuum=off"] {
            command.args(["-c", setting]);
        }
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        let log = fs::File::create(self.dir.path().join("log")).unwrap();
        command.stdout(Stdio::null()).stderr(log);
        self.process = Some(command.spawn().unwrap());
        for _ in 0..600 {
            if postgres::Client::connect(&self.admin_url(), postgres::NoTls).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        panic!("the server does not answer: {log}");
    }

    /// Stops it as a power cut would: clients are not told.
    pub fn stop(&mut self) {
        let Some(mut process) = self.process.take() else {
            return;
        };
        let mut stop = self.command("pg_ctl");
        stop.args(["stop", "-m", "immediate", "-D"])
            .arg(self.data());
        let stopped = stop.stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !stopped.is_ok_and(|status| status.success()) {
            process.kill().unwrap();
        }
        process.wait().unwrap();
    }

    fn admin_url(&self) -> String {
        format!(
            "postgresql://owner@127.0.0.1:{}/postgres?sslmode=disable",
            self.port
        )
    }

    /// The address for this user.
    pub fn url(&self, user: &str) -> String {
        format!(
            "postgresql://{user}@127.0.0.1:{}/postgres?sslmode=disable",
            self.port
        )
    }

    /// A connection of the owner's, to look behind the scenes.
    pub fn admin(&self) -> postgres::Client {
        postgres::Client::connect(&self.admin_url(), postgres::NoTls).unwrap()
    }

    pub fn count(&self, sql: &str) -> i64 {
        self.admin().query_one(sql, &[]).unwrap().get(0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Makes a key and a certificate for 127.0.0.1 in a directory; `None` without `openssl`.
pub fn certificate(dir: &Path) -> Option<Vec<u8>> {
    let output = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
        ])
        .args(["-subj", "/CN=kernelwise-test", "-days", "2"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(dir.join("server.key"))
        .arg("-out")
        .arg(dir.join("server.crt"))
        .output()
        .ok()?;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    fs::set_permissions(dir.join("server.key"), PermissionsExt::from_mode(0o600)).unwrap();
    Some(fs::read(dir.join("server.crt")).unwrap())
}

/// Passes bytes between clients and a server, and cuts the connection at a commit: the server gets it and answers, and the
/// client does not hear of it.
pub struct Proxy {
    pub port: u16,
    commits: Arc<AtomicUsize>,
}

impl Proxy {
    /// Cuts at the commit of this number, from 1, counted over all connections; and all later ones are let through.
    pub fn cutting_at(server: u16, commit: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let commits = Arc::new(AtomicUsize::new(0));
        let seen = commits.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else {
                    continue;
                };
                let seen = seen.clone();
                std::thread::spawn(move || pass(client, server, &seen, commit));
            }
        });
        Self { port, commits }
    }

    pub fn commits(&self) -> usize {
        self.commits.load(Ordering::SeqCst)
    }
}

fn pass(client: TcpStream, server: TcpStream, seen: &AtomicUsize, cut_at: usize) {
    let (mut from_client, mut to_server) =
        (client.try_clone().unwrap(), server.try_clone().unwrap());
    let (mut from_server, mut to_client) = (server, client);
    let silent = Arc::new(std::sync::atomic::AtomicBool::new(false));
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
            && seen.fetch_add(1, Ordering::SeqCst) + 1 == cut_at
        {
            silent.store(true, Ordering::SeqCst);
        }
        if to_server.write_all(bytes).is_err() {
            break;
        }
    }
    let _ = to_server.shutdown(Shutdown::Both);
    let _ = answers.join();
}
