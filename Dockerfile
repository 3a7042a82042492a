# A static binary and nothing else: no shell, no libc, no package to patch.
# The digest of the tag as of autumn 2026: an image that changes is no build that can be repeated.
FROM --platform=$BUILDPLATFORM golang:1.26@sha256:9edf71320ef8a791c4c33ec79f90496d641f306a91fb112d3d060d5c1cee4e20 AS build
ARG TARGETOS TARGETARCH VERSION=devel
WORKDIR /src
# The modules first: they change less often than the code.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X github.com/prometheus/common/version.Version=$VERSION" -o /nri-blkio ./cmd/nri-blkio

FROM scratch
COPY LICENSE /LICENSE
COPY --from=build /nri-blkio /nri-blkio
# Uid 0: cgroupfs and the runtime's socket belong to root. Limits need no capability.
USER 0:0
ENTRYPOINT ["/nri-blkio"]
CMD ["run"]
