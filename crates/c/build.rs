//! Names the shared library as it is installed, so that programs linked with it look for that name.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libanabranch.so.0");
}
