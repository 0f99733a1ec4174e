//! The functions of the WebAssembly module. The page writes a request into a buffer, and reads the answer from another.

#![allow(unsafe_code)] // The attribute `no_mangle` is unsafe, because two functions could have one name.

use std::cell::RefCell;

use crate::answer;

thread_local! {
    static REQUEST: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static ANSWER: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A buffer for a request of this many bytes. It is valid until the next call.
#[unsafe(no_mangle)]
pub extern "C" fn request_buffer(length: usize) -> *mut u8 {
    REQUEST.with_borrow_mut(|request| {
        request.clear();
        request.resize(length, 0);
        request.as_mut_ptr()
    })
}

/// Answers the request; returns the length of the answer in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn answer_request() -> usize {
    let answered = REQUEST.with_borrow(|request| answer(request));
    ANSWER.with_borrow_mut(|answer| {
        *answer = answered;
        answer.len()
    })
}

/// The answer. It is valid until the next call.
#[unsafe(no_mangle)]
pub extern "C" fn answer_buffer() -> *const u8 {
    ANSWER.with_borrow(|answer| answer.as_ptr())
}
