# A static binary and nothing else: no shell, no libc, no package to patch.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS TARGETARCH VERSION=devel
WORKDIR /src
# The modules first: they change less often than the code.
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /nri-blkio ./cmd/nri-blkio

FROM scratch
COPY LICENSE /LICENSE
COPY --from=build /nri-blkio /nri-blkio
# Uid 0: cgroupfs and the runtime's socket belong to root. Limits need no capability.
USER 0:0
ENTRYPOINT ["/nri-blkio"]
CMD ["run"]
