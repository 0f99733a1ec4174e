//! A connection to an API server that can be cut: nothing passes until it is joined again, and no connection ends, as if
//! every packet were lost.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

/// A forwarder on 127.0.0.1. Its threads end with the test binary.
pub struct Partition {
    pub port: u16,
    passes: Arc<(Mutex<bool>, Condvar)>,
}

impl Partition {
    /// Forwards to this port of this machine.
    pub fn before(real: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let passes = Arc::new((Mutex::new(true), Condvar::new()));
        let of_connections = Arc::clone(&passes);
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(("127.0.0.1", real)) else {
                    continue;
                };
                let ways = [(near.try_clone(), far.try_clone()), (Ok(far), Ok(near))];
                for (from, to) in ways {
                    let (Ok(from), Ok(to)) = (from, to) else { continue };
                    let passes = Arc::clone(&of_connections);
                    std::thread::spawn(move || forward(from, to, &passes));
                }
            }
        });
        Partition { port, passes }
    }

    /// Cuts every connection, or joins them again.
    pub fn cut(&self, is_cut: bool) {
        *self.passes.0.lock().unwrap() = !is_cut;
        self.passes.1.notify_all();
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, passes: &(Mutex<bool>, Condvar)) {
    let mut buffer = [0; 16 << 10];
    loop {
        let read = from.read(&mut buffer).unwrap_or_default();
        let cut = passes.1.wait_while(passes.0.lock().unwrap(), |passes| !*passes);
        drop(cut);
        if read == 0 || to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
