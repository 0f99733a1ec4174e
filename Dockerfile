# syntax=docker/dockerfile:1
# The image of Transom: one static binary, and licence texts. docs/contributing/release.md explains how to build, sign and verify it.
#
#   docker buildx build --platform linux/amd64,linux/arm64 --build-arg SOURCE_DATE_EPOCH=$(git log -1 --format=%ct) \
#     --build-arg REVISION=$(git rev-parse HEAD) --build-arg VERSION=0.1.0 --output type=image,rewrite-timestamp=true -t … .

# The builder runs on the machine's own platform and cross-compiles, because an emulated compiler takes an hour.
# The digest is that of the tag 1.89-alpine. It also fixes the release of Alpine. Alpine deletes old versions of packages, so their
# versions are not fixed: .ci/image builds what is published, and does not use this stage.
FROM --platform=$BUILDPLATFORM rust:1.89-alpine@sha256:4b800f2e72e04be908e5f634c504c741bd943b763d1d8ad7b096cc340e1b5b46 AS build
ARG TARGETARCH
ARG REVISION=unknown
ARG SOURCE_DATE_EPOCH=0
# ring compiles C and assembly, mimalloc compiles C. clang compiles both for every target, and lld links them.
RUN apk add --no-cache clang lld llvm musl-dev
# mimalloc includes headers of the C library and of the kernel, which differ between targets.
RUN case "$TARGETARCH" in \
      amd64) echo x86_64-unknown-linux-musl > /target; arch=x86_64 ;; \
      arm64) echo aarch64-unknown-linux-musl > /target; arch=aarch64 ;; \
      *) echo "there is no build for $TARGETARCH" >&2; exit 1 ;; \
    esac \
 && rustup target add "$(cat /target)" \
 && apk add --no-cache --root /sysroot --arch $arch --initdb --no-scripts --keys-dir /usr/share/apk/keys/$arch \
      --repositories-file /etc/apk/repositories musl-dev linux-headers
WORKDIR /src
COPY . .
# --locked: exactly the dependencies of Cargo.lock. The paths of the sources are remapped, so that all machines build the same
# binary. link-self-contained uses Rust's own start files for musl, so the C library of the target is not needed.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    target=$(cat /target) \
 && export PATH="$(rustc --print target-libdir)/../bin:$PATH" \
 && export SOURCE_DATE_EPOCH TRANSOM_REVISION="$REVISION" \
      CC="clang --target=$target --sysroot=/sysroot" AR=llvm-ar \
      CFLAGS="-ffile-prefix-map=/src=. -ffile-prefix-map=$CARGO_HOME=cargo" \
      CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_LINKER=rust-lld \
      CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=rust-lld \
      RUSTFLAGS="-C target-feature=+crt-static -C link-self-contained=yes --remap-path-prefix=/src=. --remap-path-prefix=$CARGO_HOME=cargo" \
 && cargo build --profile dist --locked --features mimalloc --target "$target" --bin transom \
 && install -D -m 0755 "target/$target/dist/transom" /out/transom \
 && touch -d "@$SOURCE_DATE_EPOCH" /out/transom

FROM scratch
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="Transom" \
      org.opencontainers.image.description="Admission webhook and policy controller for Windows pods on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.created="$CREATED" \
      org.opencontainers.image.source="$SOURCE"
COPY LICENSE THIRD-PARTY-LICENSES /
COPY --from=build /out/transom /transom
# Free memory is returned to the kernel immediately, and allocated in small pages (docs/contributing/measurements.md, "Allocator of the image").
ENV MIMALLOC_PURGE_DELAY=0 MIMALLOC_ALLOW_THP=0
# A number, so that the kubelet can check runAsNonRoot. OpenShift uses another user ID.
USER 65532:65532
EXPOSE 10250 8080
ENTRYPOINT ["/transom"]
CMD ["serve"]
