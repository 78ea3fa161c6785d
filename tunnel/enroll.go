// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package tunnel

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
)

// EnrollConn returns a connection to the public port of the hub at address,
// host:port, for a caller who knows no more of it than the SHA-256 of its
// authority's certificate (DER, in hex). Calls fail with code Unavailable
// unless the hub's chain holds that very authority and its leaf is a hub's.
// HTTPS_PROXY is honoured. The connection is closed when the context ends.
func EnrollConn(ctx context.Context, address, caFingerprint string) (*grpc.ClientConn, error) {
	fingerprint, err := parseFingerprint(caFingerprint)
	if err != nil {
		return nil, err
	}
	// The passthrough resolver leaves names to the dialer, which may be a
	// proxy's business.
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(credentials.NewTLS(enrollTLS(fingerprint))),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return environmentDial(ctx, "tcp", address)
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxEnrollAnswer)),
	)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	return conn, nil
}

// maxEnrollAnswer holds a chain and a bundle of authorities.
const maxEnrollAnswer = 1 << 20
