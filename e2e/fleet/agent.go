// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
	"github.com/spokelet/spokelet/tunnel"
	"github.com/spokelet/spokelet/tunnel/identity"
)

// invitation is what "kubectl spokelet join -o json" prints, the fields that
// an agent needs.
type invitation struct {
	Cluster string `json:"cluster"`
	Hub     struct {
		Address       string `json:"address"`
		CAFingerprint string `json:"caFingerprint"`
	} `json:"hub"`
	Token string `json:"token"`
}

// Join enrols one agent, by the JSON that "kubectl spokelet join -o json" prints,
// and makes it ready to run. An agent with roles begins as a standby.
func Join(ctx context.Context, invited []byte, doors map[string]http.Handler, roles bool) (*tunnel.Agent, error) {
	var in invitation
	if err := json.Unmarshal(invited, &in); err != nil {
		return nil, fmt.Errorf("invitation: %w", err)
	}
	uid := "uid-of-" + in.Cluster
	creds, err := enroll(ctx, in, uid)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", in.Cluster, err)
	}
	return tunnel.NewAgent(tunnel.AgentConfig{
		Address:       in.Hub.Address,
		Credentials:   creds,
		Doors:         doors,
		Roles:         roles,
		KubeSystemUID: uid,
		Version:       "fleet",
		Logger:        logr.Discard(),
		Registerer:    prometheus.NewRegistry(),
	})
}

// credentials are those of one agent; it does not live long enough to renew.
type credentials struct {
	cert  *tls.Certificate
	pool  *x509.CertPool
	hubID string
}

var errNoRenewal = errors.New("fleet agents do not renew")

// Certificate implements tunnel.Credentials.
func (c *credentials) Certificate() (*tls.Certificate, *x509.CertPool, string, error) {
	return c.cert, c.pool, c.hubID, nil
}

// NewRequest implements tunnel.Credentials.
func (*credentials) NewRequest(context.Context) ([]byte, error) { return nil, errNoRenewal }

// Renewed implements tunnel.Credentials.
func (*credentials) Renewed(context.Context, []byte, []byte) error { return errNoRenewal }

func enroll(ctx context.Context, in invitation, uid string) (*credentials, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	request, err := identity.NewRequest(key, identity.Cluster{Name: in.Cluster})
	if err != nil {
		return nil, err
	}
	conn, err := tunnel.EnrollConn(ctx, in.Hub.Address, in.Hub.CAFingerprint)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	answer, err := admitted(ctx, conn, &rpcv1.EnrollRequest{
		Cluster: in.Cluster, Token: in.Token, Csr: request, KubeSystemUid: uid,
	})
	if err != nil {
		return nil, fmt.Errorf("enroll: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	cert, err := tls.X509KeyPair(answer.GetCertificateChain(), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(answer.GetTrustBundle())
	return &credentials{cert: &cert, pool: pool, hubID: answer.GetHubId()}, nil
}

// admitted enrols as soon as the hub lets this address: many clusters from one
// address are more than it takes at once, and an agent would come again too.
func admitted(ctx context.Context, conn *grpc.ClientConn, request *rpcv1.EnrollRequest) (answer *rpcv1.EnrollResponse, err error) {
	client := rpcv1.NewEnrollServiceClient(conn)
	polled := wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		answer, err = client.Enroll(ctx, request)
		return status.Code(err) != codes.ResourceExhausted, nil
	})
	return answer, errors.Join(polled, err)
}
