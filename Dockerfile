# The image of lbd: one static binary and nothing else. `make image` builds it for
# all platforms; docs/kubernetes.md says what is not in it.
#
# The build runs on the platform of the builder and compiles for that of the image.
# It is the one of `make build`, so the image has the bytes of bin/lbd if the version
# of Go is the same.
ARG GO_VERSION=1.26.8
FROM --platform=$BUILDPLATFORM docker.io/library/golang:${GO_VERSION} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=devel
ARG COMMIT=
ARG TARGETOS
ARG TARGETARCH
RUN GOOS=$TARGETOS GOARCH=$TARGETARCH make build VERSION="$VERSION" COMMIT="$COMMIT"

FROM scratch
ARG VERSION=devel
ARG COMMIT=
LABEL org.opencontainers.image.title="lbd" \
      org.opencontainers.image.description="Keeps addresses of on-premises Kubernetes reachable" \
      org.opencontainers.image.documentation="https://lbd.dev/docs" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$COMMIT"
COPY --from=build /src/bin/lbd /usr/bin/lbd
ENV PATH=/usr/bin
# The DaemonSet and the static pod need root and say so.
USER 65532:65532
ENTRYPOINT ["/usr/bin/lbd"]
