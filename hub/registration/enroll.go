// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	rpcv1 "github.com/spokelet/spokelet/api/rpc/v1"
	"github.com/spokelet/spokelet/hub/registration/token"
	"github.com/spokelet/spokelet/internal/managedcluster"
	"github.com/spokelet/spokelet/tunnel/identity"
)

var (
	errReplaced = errors.New("another call for this cluster took its place")
	errToken    = errors.New("join token refused")
)

// Enroller answers the Enroll call, the one that needs no client certificate.
type Enroller struct {
	rpcv1.UnimplementedEnrollServiceServer

	config   Config
	gate     *Gate
	counters *counters
	tokens   *tokens
	limiter  *limiter
}

func newEnroller(config Config, gate *Gate, counters *counters) *Enroller {
	return &Enroller{
		config:   config,
		gate:     gate,
		counters: counters,
		tokens:   &tokens{live: config.Live, writer: config.Client, namespace: config.HubNamespace, now: config.Now},
		limiter:  newLimiter(config.Limits, config.Now),
	}
}

// Enroll issues the certificate of one cluster to the key that signed the
// request. Its errors are gRPC statuses. Who has no valid token learns nothing
// but that: not whether the cluster exists, nor whether a token does.
func (e *Enroller) Enroll(ctx context.Context, request *rpcv1.EnrollRequest) (*rpcv1.EnrollResponse, error) {
	response, err := e.enroll(ctx, request)
	if err != nil {
		return nil, e.reportRefusal(ctx, request.GetCluster(), err)
	}
	e.counters.issued.WithLabelValues("join").Inc()
	return response, nil
}

func (e *Enroller) enroll(ctx context.Context, request *rpcv1.EnrollRequest) (*rpcv1.EnrollResponse, error) {
	holds, err := e.limiter.allow(ctx, request)
	if err != nil {
		return nil, err
	}
	if holds {
		e.config.MarkTokenHolder(ctx)
	}
	app, cluster, err := e.verify(ctx, request, holds)
	if err != nil {
		return nil, err
	}
	if err := e.awaitAcceptance(ctx, cluster); err != nil {
		return nil, err
	}
	return e.issue(ctx, app, cluster)
}

// verify does all that can be done before the cluster is accepted; at its end
// the token belongs to the key.
func (e *Enroller) verify(ctx context.Context, request *rpcv1.EnrollRequest, holds bool) (enrollment, identity.Cluster, error) {
	release, err := e.limiter.acquire(ctx, holds)
	if err != nil {
		return enrollment{}, identity.Cluster{}, err
	}
	defer release()
	app, err := e.parseEnrollRequest(request)
	if err != nil {
		return enrollment{}, identity.Cluster{}, err
	}
	app.hasToken = holds
	record, err := e.authenticate(ctx, app)
	if err != nil {
		return enrollment{}, identity.Cluster{}, err
	}
	cluster := e.clusterIdentity(record)
	if err := checkRequest(app.csr, cluster); err != nil {
		return enrollment{}, identity.Cluster{}, err
	}
	if pinned := record.Annotations[AnnotationKubeSystemUID]; pinned != "" && pinned != app.uid {
		e.gate.reportConflict(record, app.uid)
		return enrollment{}, identity.Cluster{}, ErrOtherSpoke
	}
	if err := e.tokens.bind(ctx, app.cluster, app.token, app.key); err != nil {
		return enrollment{}, identity.Cluster{}, markTokenError(err)
	}
	return app, cluster, nil
}

// authenticate looks up both the token and the record, whatever it finds first,
// so that the time it takes does not reveal which of them exists.
func (e *Enroller) authenticate(ctx context.Context, app enrollment) (*clusterv1.ManagedCluster, error) {
	tokenErr := e.tokens.check(ctx, app.cluster, app.token, app.key)
	if app.tokenErr != nil {
		tokenErr = app.tokenErr
	}
	record, err := e.gate.getRecord(ctx, e.config.Live, app.cluster)
	if err := cmp.Or(markTokenError(err), markTokenError(tokenErr)); err != nil {
		return nil, err
	}
	return record, nil
}

// markTokenError marks the errors that the caller sees as one and the same. A
// failure to look something up is none of them.
func markTokenError(err error) error {
	for _, refusal := range []error{
		ErrUnknown, errNoToken, token.ErrMalformed, token.ErrForged, token.ErrExpired, token.ErrUsed, token.ErrRecord,
	} {
		if errors.Is(err, refusal) {
			return fmt.Errorf("%w: %w", errToken, err)
		}
	}
	return err
}

func (e *Enroller) clusterIdentity(record *clusterv1.ManagedCluster) identity.Cluster {
	return identity.Cluster{
		HubID: e.config.Authority.HubID(),
		Name:  record.Name,
		ID:    record.Annotations[managedcluster.AnnotationClusterID],
	}
}

// awaitAcceptance returns nil once the record says hubAcceptsClient. It sleeps
// until the record changes.
func (e *Enroller) awaitAcceptance(ctx context.Context, cluster identity.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, e.config.AcceptTimeout)
	defer cancel()
	waiting, leave := e.gate.waiters.enter(cluster.Name)
	defer leave()
	for {
		// Read after entering, and past the cache: whatever changes from here on
		// is announced, and a record made a moment ago is seen.
		_, err := e.gate.getAdmittedRecord(ctx, e.config.Live, cluster)
		if !errors.Is(err, ErrNotAccepted) {
			return err
		}
		select {
		case <-waiting.changed:
		case <-waiting.replaced:
			return errReplaced
		case <-ctx.Done():
			return ErrNotAccepted
		}
	}
}

// issue reads the record and the token once more, from the API server: what it grants
// cannot be taken back before the certificate's end except by cutting sessions, and
// since examine there was time to withdraw either.
func (e *Enroller) issue(ctx context.Context, app enrollment, cluster identity.Cluster) (*rpcv1.EnrollResponse, error) {
	release, err := e.limiter.acquire(ctx, app.hasToken)
	if err != nil {
		return nil, err
	}
	defer release()
	record, err := e.gate.getAdmittedRecord(ctx, e.config.Live, cluster)
	if err != nil {
		return nil, err
	}
	if err := e.tokens.check(ctx, app.cluster, app.token, app.key); err != nil {
		return nil, markTokenError(err)
	}
	if err := e.gate.pinUID(ctx, record, app.uid); err != nil {
		return nil, err
	}
	chain, bundle, err := e.config.Authority.IssueCluster(cluster, app.csr)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	e.config.Logger.Info("cluster enrolled", "cluster", cluster.Name, "clusterID", cluster.ID)
	e.gate.store.update(cluster.Name, func(o *observed) { o.hasConflict, o.isResolved = false, true })
	e.gate.enqueue(cluster.Name)
	return &rpcv1.EnrollResponse{CertificateChain: chain, TrustBundle: bundle, HubId: cluster.HubID}, nil
}

// reportRefusal logs the whole error and returns what the caller may know of it.
func (e *Enroller) reportRefusal(ctx context.Context, cluster string, err error) error {
	reason := refusalReason(err)
	e.counters.join.WithLabelValues(reason).Inc()
	// A name of any length and content comes from a stranger.
	e.config.Logger.Info("enrolment refused",
		"cluster", fmt.Sprintf("%.63q", cluster), "reason", reason, "error", err.Error(), "remote", clientAddress(ctx))
	if errors.Is(err, errToken) {
		e.recordEvent(ctx, cluster, err)
	}
	return toStatusError(cluster, err)
}

// recordEvent puts a refused token on the record of the cluster, if it has one.
func (e *Enroller) recordEvent(ctx context.Context, cluster string, err error) {
	record, lookupErr := e.gate.getRecord(ctx, e.config.Client, cluster)
	if lookupErr != nil {
		return
	}
	e.config.Events.Eventf(record, nil, corev1.EventTypeWarning, "JoinRefused", "Enroll", "%s", err.Error())
}

// toStatusError maps a refusal to the status that the caller gets.
func toStatusError(cluster string, err error) error {
	switch {
	case errors.Is(err, errRequest):
		return status.Error(codes.InvalidArgument, err.Error())
	case errors.Is(err, errRateLimit), errors.Is(err, errBusy):
		return status.Error(codes.ResourceExhausted, err.Error())
	case errors.Is(err, ErrNotReady):
		return status.Error(codes.Unavailable, err.Error())
	case errors.Is(err, errReplaced):
		return status.Errorf(codes.Aborted, "cluster %q: %v", cluster, err)
	case errors.Is(err, ErrNotAccepted):
		return status.Errorf(codes.FailedPrecondition,
			"cluster %q is not accepted by the hub: hubAcceptsClient of its ManagedCluster must be set to true", cluster)
	case errors.Is(err, ErrOtherSpoke):
		return status.Errorf(codes.PermissionDenied,
			"cluster %q was joined from a cluster with another kube-system UID: detach it on the hub before joining a new one under its name", cluster)
	case errors.Is(err, errToken), errors.Is(err, ErrUnknown), errors.Is(err, ErrStranger):
		return status.Errorf(codes.PermissionDenied,
			"join token for cluster %q is not valid: unknown, expired or already used by another key; run \"kubectl spokelet join %s\" on the hub for a new one",
			cluster, cluster)
	default:
		return status.Errorf(codes.Unavailable, "cluster %q cannot be enrolled now: the hub's log says why", cluster)
	}
}
