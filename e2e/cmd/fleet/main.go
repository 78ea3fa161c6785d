// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

// Command fleet joins many clusters that exist only as agents: real tunnels,
// enrolment and sessions, and a node summary each, with no cluster behind
// them. The benchmark of the hub's memory runs it as a process of its own. It
// reads one invitation a line from standard input, the JSON that "kubectl
// spokelet join -o json" prints, prints "ready" once all are connected, and
// ends when its input does.
package main

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/tunnel"
	"github.com/spokelet/spokelet/tunnel/identity"
	"github.com/spokelet/spokelet/tunnel/resource"
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

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var agents []*tunnel.Agent
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() && lines.Text() != "start" {
		agent, err := join(ctx, lines.Bytes())
		if err != nil {
			return err
		}
		agents = append(agents, agent)
		running.Go(func() { _ = agent.Run(ctx) }) // ends with ctx
	}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		for _, agent := range agents {
			if !agent.Ready() {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("%d agents: not all connected: %w", len(agents), err)
	}
	fmt.Println("ready")
	for lines.Scan() { // the end of the input is the signal
	}
	return lines.Err()
}

// join enrols one agent and makes it ready to run.
func join(ctx context.Context, line []byte) (*tunnel.Agent, error) {
	var in invitation
	if err := json.Unmarshal(line, &in); err != nil {
		return nil, fmt.Errorf("invitation: %w", err)
	}
	uid := "uid-of-" + in.Cluster
	creds, err := enroll(ctx, in, uid)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", in.Cluster, err)
	}
	doors, err := doorsOf()
	if err != nil {
		return nil, err
	}
	return tunnel.NewAgent(tunnel.AgentConfig{
		Address:       in.Hub.Address,
		Credentials:   creds,
		Doors:         doors,
		KubeSystemUID: uid,
		Version:       "fleet",
		Logger:        logr.Discard(),
		Registerer:    prometheus.NewRegistry(),
	})
}

// doorsOf serves Sync with a node of a usual size.
func doorsOf() (map[string]http.Handler, error) {
	summary, err := wire.NodeSummary{
		KubernetesVersion: "v1.36.3",
		Nodes:             wire.NodeCounts{Total: 3, Ready: 3},
		Capacity:          wire.Quantities{"cpu": "12", "memory": "48Gi", "pods": "330", "ephemeral-storage": "300Gi"},
		Allocatable:       wire.Quantities{"cpu": "12", "memory": "47Gi", "pods": "330", "ephemeral-storage": "290Gi"},
		Conditions:        []wire.NodeCondition{{Type: "Ready", Status: "True", Reason: "NodesReady", Message: "3 of 3 nodes are ready"}},
	}.Encode()
	if err != nil {
		return nil, err
	}
	nodes := resource.NewSource(wire.NodeSummaryKind)
	if err := nodes.Put(resource.Resource{Key: wire.NodeSummaryKey, Body: summary}); err != nil {
		return nil, err
	}
	nodes.Complete()
	replicator, err := resource.NewAgent([]*resource.Source{nodes}, nil)
	if err != nil {
		return nil, err
	}
	return map[string]http.Handler{tunnel.DoorSync: replicator}, nil
}

// credentials are those of one agent; it does not live long enough to renew.
type credentials struct {
	cert  *tls.Certificate
	pool  *x509.CertPool
	hubID string
}

var errNoRenewal = errors.New("fleet agents do not renew")

func (c *credentials) Certificate() (*tls.Certificate, *x509.CertPool, string, error) {
	return c.cert, c.pool, c.hubID, nil
}

func (*credentials) NewRequest(context.Context) ([]byte, error) { return nil, errNoRenewal }

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
	cert, err := tls.X509KeyPair(answer.GetCertificateChain(), pemKey(keyDER))
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
