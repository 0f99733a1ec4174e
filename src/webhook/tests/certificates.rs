//! Replacing certificates while serving: mounted as a kubelet mounts them, swapped under load, broken, and
//! written out.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;

struct Pair {
    certificate: String,
    key: String,
}

fn pair() -> Pair {
    let pair = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    Pair {
        certificate: pair.cert.pem(),
        key: pair.signing_key.serialize_pem(),
    }
}

/// Updates a directory as a kubelet updates a mounted Secret: new files next to the old ones, then one
/// rename.
fn mount(directory: &Path, version: &str, certificate: &str, key: &str) {
    let real = directory.join(version);
    std::fs::create_dir(&real).unwrap();
    std::fs::write(real.join("tls.crt"), certificate).unwrap();
    std::fs::write(real.join("tls.key"), key).unwrap();
    symlink(version, directory.join("..tmp")).unwrap();
    std::fs::rename(directory.join("..tmp"), directory.join("..data")).unwrap();
    for name in ["tls.crt", "tls.key"] {
        let _ = symlink(Path::new("..data").join(name), directory.join(name));
    }
}

async fn started(directory: &Path, trusted: &[&Pair]) -> Running {
    let files = CertificateFiles {
        certificate: directory.join("tls.crt"),
        key: directory.join("tls.key"),
        poll: Duration::from_millis(10),
    };
    let mut server = start(Limits::default(), CertificateSource::Files(files)).await;
    server.ca = trusted.iter().map(|pair| pair.certificate.as_str()).collect();
    server
}

/// The certificate that a new connection receives.
async fn served(server: &Running) -> Vec<u8> {
    let stream = connect(server.address, &server.ca, "http/1.1").await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

fn der(pair: &Pair) -> Vec<u8> {
    CertificateDer::from_pem_slice(pair.certificate.as_bytes())
        .unwrap()
        .to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_swapped_secret_is_served_at_once_and_no_request_fails() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (pair(), pair());
    mount(directory.path(), "..1", &old.certificate, &old.key);
    let server = Arc::new(started(directory.path(), &[&old, &new]).await);
    assert_eq!(served(&server).await, der(&old));
    let mut long_lived = server.http2().await;

    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let load: Vec<_> = (0..2)
        .map(|_| {
            let (server, stop, done) = (Arc::clone(&server), Arc::clone(&stop), Arc::clone(&done));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let mut sender = server.http1().await;
                    let response = sender.send_request(post("/mutate", full("{}"))).await.unwrap();
                    assert_eq!(response.status(), 200);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    while done.load(Ordering::Relaxed) < 10 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    mount(directory.path(), "..2", &new.certificate, &new.key);
    while served(&server).await != der(&new) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let sofar = done.load(Ordering::Relaxed);
    while done.load(Ordering::Relaxed) < sofar + 10 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    stop.store(true, Ordering::Relaxed);
    for task in load {
        task.await.unwrap();
    }
    assert_eq!(
        long_lived
            .send_request(post("/mutate", full("{}")))
            .await
            .unwrap()
            .status(),
        200
    );
    let text = server.metrics.expose();
    assert!(
        text.contains("transom_certificate_reloads_total{result=\"success\"} 1"),
        "{text}"
    );
    assert!(
        text.contains("transom_certificate_reloads_total{result=\"error\"} 0"),
        "{text}"
    );
    Arc::into_inner(server).unwrap().stop().await;
}

#[tokio::test]
async fn a_broken_pair_is_reported_once_and_the_old_one_stays() {
    let directory = tempfile::tempdir().unwrap();
    let (old, other) = (pair(), pair());
    mount(directory.path(), "..1", &old.certificate, &old.key);
    let server = started(directory.path(), &[&old, &other]).await;
    let broken = [
        (other.certificate.as_str(), old.key.as_str()),
        ("nonsense", &other.key),
    ];
    for (errors, (certificate, key)) in broken.into_iter().enumerate() {
        mount(directory.path(), &format!("..broken{errors}"), certificate, key);
        let expected = format!(
            "transom_certificate_reloads_total{{result=\"error\"}} {}\n",
            errors + 1
        );
        while !server.metrics.expose().contains(&expected) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(served(&server).await, der(&old));
    }
    mount(directory.path(), "..3", &other.certificate, &other.key);
    while served(&server).await != der(&other) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let text = server.metrics.expose();
    assert!(
        text.contains("transom_certificate_reloads_total{result=\"error\"} 2"),
        "{text}"
    );
    server.stop().await;
}

#[tokio::test]
async fn the_written_ca_is_the_one_that_clients_need() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ca.crt");
    let source = CertificateSource::SelfSigned {
        names: vec!["transom.windows.svc".to_owned()],
        write_ca: Some(path.clone()),
    };
    let server = start(Limits::default(), source).await;
    let ca = std::fs::read_to_string(path).unwrap();
    assert_eq!(ca, server.ca);
    connect(server.address, &ca, "http/1.1").await.unwrap();
    assert!(
        connect(server.address, &pair().certificate, "http/1.1")
            .await
            .is_err()
    );
    server.stop().await;
}

#[tokio::test]
async fn a_certificate_that_the_caller_keeps_is_served_as_it_is_replaced() {
    let (old, new) = (pair(), pair());
    let identity =
        |pair: &Pair| Identity::from_pem(pair.certificate.as_bytes(), pair.key.as_bytes()).unwrap();
    let serving = ServingCert::new(identity(&old));
    let mut server = start(
        Limits::default(),
        CertificateSource::Provided(Arc::clone(&serving)),
    )
    .await;
    server.ca = format!("{}{}", old.certificate, new.certificate);
    assert_eq!(served(&server).await, der(&old));
    serving.replace(identity(&new));
    assert_eq!(served(&server).await, der(&new));
    server.stop().await;
}
