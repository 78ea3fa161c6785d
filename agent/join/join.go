// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package join

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
)

var (
	// ErrClockBehind says that the certificate in hand is not valid yet.
	ErrClockBehind = errors.New("this machine's clock is behind the hub's")
	// ErrClockAhead says that a certificate ended before it arrived.
	ErrClockAhead = errors.New("this machine's clock is ahead of the hub's")
	// ErrToken says that there is no join token to show.
	ErrToken = errors.New("no join token")
)

const (
	// answerTimeout is longer than the hub waits for a cluster to be accepted.
	answerTimeout = 6 * time.Minute
	// maxToken bounds what is read from a token's file.
	maxToken = 1 << 10
)

// Conn is a connection to the hub's public port, as tunnel.EnrollConn opens it:
// to a hub whose CA has the known fingerprint, and to no other.
type Conn interface {
	grpc.ClientConnInterface
	Close() error
}

// Request says how a cluster joins.
type Request struct {
	Dial func(context.Context) (Conn, error)
	// Token returns the join token; asked at each attempt, so that a new one
	// needs no restart.
	Token func() (string, error)
	// CAFingerprint is the SHA-256 of the hub's CA certificate (DER), in hex of
	// either case.
	CAFingerprint string
	// KubeSystemUID is the UID of the spoke's kube-system namespace.
	KubeSystemUID string
	// BackoffMin and BackoffMax bound the pause after a refusal; default 1 s and
	// 1 min. The pause is random between nothing and the bound (full jitter).
	BackoffMin, BackoffMax time.Duration
	Logger                 logr.Logger
	// Now defaults to time.Now.
	Now func() time.Time
}

func (r *Request) setDefaults() {
	if r.BackoffMin == 0 {
		r.BackoffMin = time.Second
	}
	if r.BackoffMax == 0 {
		r.BackoffMax = time.Minute
	}
	if r.Now == nil {
		r.Now = time.Now
	}
}

// Join returns nil once the identity has a certificate that is valid now. It
// asks the hub for one, again and again, until ctx ends; the reason why it has
// none yet is logged when it changes.
func (i *Identity) Join(ctx context.Context, request Request) error {
	request.setDefaults()
	before, _ := i.get()
	for attempt := 0; ; attempt++ {
		err := i.try(ctx, request)
		if err == nil {
			i.succeeded(request, before, attempt)
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		i.report(request, err)
		// Taken after the attempt, whose own result must not end the pause.
		_, changed := i.get()
		pause(ctx, request.backoff(attempt), changed)
	}
}

// succeeded notes the end of a Join, which may have found nothing to do.
func (i *Identity) succeeded(request Request, before *credentials, attempt int) {
	now, _ := i.get()
	if attempt > 0 || now != before {
		i.report(request, nil)
	}
	if now != before {
		request.Logger.Info("cluster joined the hub", "cluster", i.config.Cluster, "hubID", now.cluster.HubID)
	}
}

// report remembers why the cluster cannot join, and logs it when it is another
// reason than before.
func (i *Identity) report(request Request, problem error) {
	i.mu.Lock()
	before := i.problem
	i.problem = problem
	i.mu.Unlock()
	// The text is compared so that the log has one line for each reason.
	if problem == nil || before != nil && before.Error() == problem.Error() {
		return
	}
	if errors.Is(problem, ErrToken) {
		request.Logger.Error(problem, "cluster cannot join the hub without help", "cluster", i.config.Cluster)
		return
	}
	request.Logger.Info("cluster cannot join the hub yet",
		"cluster", i.config.Cluster, "reason", problem.Error(), "now", request.Now())
}

// Problem is why the cluster, which has to join, cannot; nil when it can or need
// not.
func (i *Identity) Problem() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.problem
}

// try returns nil when there is a valid certificate, safely kept, at its end.
func (i *Identity) try(ctx context.Context, request Request) error {
	current, _ := i.get()
	if current == nil || request.Now().After(current.leaf().NotAfter) {
		if err := i.enroll(ctx, request); err != nil {
			return ended(current, i.advise(err))
		}
	}
	if err := i.save(ctx); err != nil {
		return err
	}
	current, _ = i.get()
	return clock(current, request.Now())
}

func ended(current *credentials, err error) error {
	if current == nil {
		return err
	}
	return fmt.Errorf("certificate ended at %s: %w", stamp(current.leaf().NotAfter), err)
}

// advise tells what to do where a new token is all that helps.
func (i *Identity) advise(err error) error {
	if !errors.Is(err, ErrToken) && status.Code(err) != codes.PermissionDenied {
		return err
	}
	return fmt.Errorf("%w; make a new join token on the hub with \"kubectl spokelet join %s\" and give it to the agent: "+
		"it is read anew at every attempt", err, i.config.Cluster)
}

// clock compares a certificate's validity with the time here. Its errors hold
// no time that moves: they are compared with the one before.
func clock(c *credentials, now time.Time) error {
	if from := c.leaf().NotBefore; now.Before(from) {
		return fmt.Errorf("%w: the certificate is valid from %s", ErrClockBehind, stamp(from))
	}
	if now.After(c.leaf().NotAfter) {
		return fmt.Errorf("%w: the certificate that it has just issued is past its end here", ErrClockAhead)
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func (i *Identity) enroll(ctx context.Context, request Request) error {
	joinToken, err := request.Token()
	if err != nil {
		return err
	}
	csr, err := i.firstRequest()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	conn, err := request.Dial(ctx)
	if err != nil {
		return fmt.Errorf("hub cannot be reached: %w", err)
	}
	defer func() { _ = conn.Close() }()
	response, err := rpcv1.NewEnrollServiceClient(conn).Enroll(ctx, &rpcv1.EnrollRequest{
		Cluster: i.config.Cluster, Token: joinToken, Csr: csr, KubeSystemUid: request.KubeSystemUID,
	})
	if err != nil {
		return fmt.Errorf("enrolment: %w", err)
	}
	return i.enrolled(ctx, request, response, hashToken(joinToken))
}

func (i *Identity) enrolled(ctx context.Context, request Request, response *rpcv1.EnrollResponse, tokenHash string) error {
	if !holds(response.GetTrustBundle(), request.CAFingerprint) {
		return fmt.Errorf("trust bundle: %w: the CA of the given fingerprint is not in it", ErrAnswer)
	}
	return i.install(ctx, response.GetCertificateChain(), response.GetTrustBundle(), tokenHash, func(next *credentials) error {
		if next.cluster.HubID != response.GetHubId() {
			return fmt.Errorf("%w: it is of hub %q, which calls itself %q", ErrAnswer, next.cluster.HubID, response.GetHubId())
		}
		return nil
	})
}

func (r *Request) backoff(attempt int) time.Duration {
	ceiling := r.BackoffMax
	// Shifted by few places only, so that it does not overflow.
	if grown := r.BackoffMin << min(attempt, 16); grown > 0 && grown < ceiling {
		ceiling = grown
	}
	return rand.N(ceiling) + 1 //nolint:gosec // jitter is no secret
}

// pause ends early when another replica has joined in the meantime.
func pause(ctx context.Context, d time.Duration, changed <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-changed:
	case <-timer.C:
	}
}

// TokenFile reads a join token from a file, as a mounted Secret provides it.
func TokenFile(path string) func() (string, error) {
	return func() (string, error) {
		info, err := os.Stat(path)
		if err != nil {
			return "", fmt.Errorf("%w: %w", ErrToken, err)
		}
		if info.Size() > maxToken {
			return "", fmt.Errorf("%w: %s has %d bytes", ErrToken, path, info.Size())
		}
		raw, err := os.ReadFile(path) //nolint:gosec // the agent's own configuration names the file
		if err != nil {
			return "", fmt.Errorf("%w: %w", ErrToken, err)
		}
		joinToken := strings.TrimSpace(string(raw))
		if joinToken == "" {
			return "", fmt.Errorf("%w: %s is empty", ErrToken, path)
		}
		return joinToken, nil
	}
}

// KubeSystemUID returns what tells one Kubernetes cluster from another: the UID
// of its kube-system namespace.
func KubeSystemUID(ctx context.Context, namespaces typedcorev1.NamespacesGetter) (string, error) {
	namespace, err := namespaces.Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("namespace %q: %w", metav1.NamespaceSystem, err)
	}
	return string(namespace.UID), nil
}
