// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/podrefs"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	// ReasonTokenNotIssued: a token that the pod asks for cannot be had.
	ReasonTokenNotIssued = "TokenNotIssued"

	// A token is renewed when four fifths of its life, or renewAfter, are over, as by
	// a kubelet; and never within minRenewal, however the clocks differ.
	renewAfter = 24 * time.Hour
	minRenewal = 10 * time.Second
	// renewSpread is the part of that time by which a token is renewed earlier at most,
	// so that those that were issued together are not renewed together.
	renewSpread = 50
)

var (
	errTooManyTokens = fmt.Errorf("pod asks for more than %d tokens of its service account", wire.PodTokensMax)
	errEmptyToken    = errors.New("the API server issued an empty token")
)

// TokenPolicy says for which pods the hub issues tokens of its service accounts.
// Whoever controls the cluster that a pod runs in has the pod's tokens.
type TokenPolicy struct {
	// Issue is the hub's consent.
	Issue bool
	// Namespaces are the only ones whose accounts get tokens.
	Namespaces []string
}

func (p TokenPolicy) allows(namespace string) bool {
	return p.Issue && slices.Contains(p.Namespaces, namespace)
}

// tokenIssuer has tokens issued for pods, publishes them, and renews them.
type tokenIssuer struct {
	clusters *clusterTable
	client   kubernetes.Interface
	sync     Replicator
	policy   TokenPolicy
	events   *eventWriter
	metrics  *metrics
	logger   logr.Logger
	// queue holds the pods of which a token may be due.
	queue workqueue.TypedRateLimitingInterface[podRef]
	// enqueueStatus has the status of a pod written, which says why it has no tokens.
	enqueueStatus func(podRef)
}

// issuesTokens tells whether the tokens that a pod asks for are those of the hub.
func (i *tokenIssuer) issuesTokens(pod *corev1.Pod) bool {
	return i.policy.allows(pod.Namespace) && len(podrefs.Tokens(&pod.Spec)) > 0
}

// tokenSet are the tokens of one pod; its node's mu guards them.
type tokenSet struct {
	tokens map[string]issuedToken
	// delivered: the pod has had all of them, from us or from a hub process before.
	delivered bool
	// failure says why one could not be had when that was last tried, and warned tells
	// that an event of the pod does, too.
	failure       string
	eventRecorded bool
	// timer waits for the first that is due; nil while none is waited for.
	timer *time.Timer
}

// issuedToken is one token.
type issuedToken struct {
	token              string
	renewAt, expiresAt time.Time
}

func (g *tokenSet) stopTimer() {
	if g != nil && g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
}

func tokenKey(p *podState) wire.PodTokenKey {
	return wire.PodTokenKey{PodKey: keyOf(p.pod), UID: string(p.pod.UID)}
}

// startIssuing has tokens issued for the pods of a cluster whose agent asks for them, and
// renewed until it ceases to. What was issued before is kept: it is what a reconnect
// need not bring.
func (c *Controller) startIssuing(cluster string) (ceased func()) {
	n := c.updateCluster(cluster, func(n *clusterState) {
		n.tokenStreams++
		for key, p := range n.pods {
			c.tokens.updateTokens(n, key, p)
			if p.tokens != nil {
				c.tokens.queue.Add(podRef{cluster: n.name, key: key})
			}
		}
	})
	return func() {
		n.mu.Lock()
		n.tokenStreams--
		if n.tokenStreams == 0 {
			for _, p := range n.pods {
				p.tokens.stopTimer()
			}
		}
		n.mu.Unlock()
		c.deleteIfUnused(n)
	}
}

// completeTokens: the pods are known, and with that what tokens there may be; n.mu is
// held. An agent keeps those that it has until it gets others.
func (i *tokenIssuer) completeTokens(n *clusterState) {
	if i.policy.Issue {
		i.sync.Source(n.name, wire.KindPodToken).Complete()
	}
}

// updateTokens begins to have tokens issued for a pod, or ends it with the pod; n.mu is
// held.
func (i *tokenIssuer) updateTokens(n *clusterState, key wire.PodKey, p *podState) {
	switch {
	case !p.published || !p.hubTokens:
	case hasEnded(p.pod.Status.Phase):
		i.unpublishTokens(n, p)
	case p.tokens != nil:
		i.publishTokensOfRunning(n, p)
	case n.tokenStreams > 0:
		// A pod that is in its cluster was made with all of its tokens there.
		p.tokens = &tokenSet{tokens: map[string]issuedToken{}, delivered: wasInCluster(p.pod)}
		i.queue.Add(podRef{cluster: n.name, key: key})
	}
}

// publishTokensOfRunning hands out what there is when a pod turns out to be in its cluster while it
// waits for its tokens: a process before had published them; n.mu is held.
func (i *tokenIssuer) publishTokensOfRunning(n *clusterState, p *podState) {
	if p.tokens.delivered || !wasInCluster(p.pod) {
		return
	}
	p.tokens.delivered = true
	if len(p.tokens.tokens) == 0 {
		return
	}
	if err := i.publishTokens(n, p); err != nil {
		i.logger.Error(err, "cannot send the tokens of a pod", "node", n.name, "pod", keyOf(p.pod).String())
	}
}

// unpublishTokens takes the tokens of a pod back; n.mu is held.
func (i *tokenIssuer) unpublishTokens(n *clusterState, p *podState) {
	if p.tokens == nil {
		return
	}
	p.tokens.stopTimer()
	p.tokens = nil
	if !n.forgotten {
		i.sync.Source(n.name, wire.KindPodToken).Delete(tokenKey(p).String())
	}
}

// missingTokenStatus says of a pod that waits for its tokens why there are none; its node's mu
// is held.
func (p *podState) missingTokenStatus() *wire.PodStatus {
	pod := p.latest()
	if p.tokens == nil || p.tokens.failure == "" || p.tokens.delivered || wasInCluster(pod) || pod.DeletionTimestamp != nil || p.report.hasPodStatus() {
		return nil
	}
	return &wire.PodStatus{Reason: ReasonTokenNotIssued, Message: p.tokens.failure, Retried: true, Generation: pod.Generation}
}

func (i *tokenIssuer) processNext(ctx context.Context) bool {
	r, quit := i.queue.Get()
	if quit {
		return false
	}
	defer i.queue.Done(r)
	pod, due := i.dueTokens(r)
	if len(due) == 0 {
		i.queue.Forget(r)
		return true
	}
	got, failed := i.requestTokens(ctx, pod, due)
	if len(failed) == 0 {
		i.queue.Forget(r)
	}
	wanted, news := i.storeTokens(r, pod, got, failed)
	if news != "" {
		i.recordTokenFailure(ctx, r, pod, news)
	}
	if wanted && len(failed) > 0 {
		i.queue.AddRateLimited(r)
		i.logger.V(1).Info("tokens of a pod are asked for again", "node", r.cluster, "pod", r.key.String(), "err", errors.Join(failed...).Error())
	}
	return true
}

// dueTokens returns what is to be asked for now, and for which pod. When there is
// nothing it is waited for.
func (i *tokenIssuer) dueTokens(r podRef) (*corev1.Pod, []podrefs.Token) {
	n := i.clusters.getCluster(r.cluster)
	if n == nil {
		return nil, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	p, ok := n.pods[r.key]
	if !ok || n.forgotten || n.tokenStreams == 0 || p.tokens == nil {
		return nil, nil
	}
	now := time.Now()
	var due []podrefs.Token
	for _, t := range podrefs.Tokens(&p.pod.Spec) {
		if g, ok := p.tokens.tokens[t.Name]; !ok || !now.Before(g.renewAt) {
			due = append(due, t)
		}
	}
	if len(due) == 0 {
		i.scheduleRenewal(r, p.tokens)
	}
	return p.pod, due
}

// scheduleRenewal asks for the token that is due first when it is; the node's mu is held.
func (i *tokenIssuer) scheduleRenewal(r podRef, g *tokenSet) {
	g.stopTimer()
	first := time.Time{}
	for _, held := range g.tokens {
		if first.IsZero() || held.renewAt.Before(first) {
			first = held.renewAt
		}
	}
	g.timer = time.AfterFunc(time.Until(first), func() { i.queue.Add(r) })
}

// requestTokens asks for tokens. Those that it got it returns with errors too: one that is
// refused, as for its audience, is no reason to let the others expire.
func (i *tokenIssuer) requestTokens(ctx context.Context, pod *corev1.Pod, due []podrefs.Token) (got map[string]issuedToken, failed []error) {
	got = map[string]issuedToken{}
	if len(due) > wire.PodTokensMax {
		return got, []error{errTooManyTokens}
	}
	for _, t := range due {
		g, err := i.requestToken(ctx, pod, t)
		if err != nil {
			i.metrics.tokens.WithLabelValues(resultError).Inc()
			failed = append(failed, err)
			continue
		}
		i.metrics.tokens.WithLabelValues(resultIssued).Inc()
		got[t.Name] = g
	}
	return got, failed
}

// requestToken asks for one token, which is good while there is that very pod.
func (i *tokenIssuer) requestToken(ctx context.Context, pod *corev1.Pod, t podrefs.Token) (issuedToken, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &t.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if t.Audience != "" {
		request.Spec.Audiences = []string{t.Audience}
	}
	account := pod.Spec.ServiceAccountName
	about := fmt.Sprintf("the hub's token of service account %q", account)
	if t.Audience != "" {
		about += fmt.Sprintf(" for %q", t.Audience)
	}
	answer, err := i.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return issuedToken{}, fmt.Errorf("%s: %w", about, err)
	}
	if answer.Status.Token == "" {
		return issuedToken{}, fmt.Errorf("%s: %w", about, errEmptyToken)
	}
	life := time.Duration(t.ExpirationSeconds) * time.Second
	if granted := answer.Spec.ExpirationSeconds; granted != nil {
		life = time.Duration(*granted) * time.Second
	}
	expires := answer.Status.ExpirationTimestamp.Time
	return issuedToken{token: answer.Status.Token, expiresAt: expires, renewAt: renewalTime(time.Now(), expires, life)}, nil
}

// renewalTime is when a token is to be replaced.
func renewalTime(now, expires time.Time, life time.Duration) time.Time {
	after := min(max(life, 0)/5*4, renewAfter)
	early := rand.N(after/renewSpread + 1) //nolint:gosec // spreads load, hides nothing
	at := expires.Add(after - early - life)
	if soonest := now.Add(minRenewal); at.Before(soonest) {
		return soonest
	}
	return at
}

// storeTokens takes what came of asking for tokens, and reports whether anybody
// still wants them, and what an event is to say of a pod that runs, if anything.
func (i *tokenIssuer) storeTokens(r podRef, pod *corev1.Pod, got map[string]issuedToken, failed []error) (wanted bool, news string) {
	n := i.clusters.getCluster(r.cluster)
	if n == nil {
		return false, ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	p, ok := n.pods[r.key]
	if !ok || n.forgotten || p.pod.UID != pod.UID || p.tokens == nil {
		return false, ""
	}
	g, err := p.tokens, errors.Join(failed...)
	maps.Copy(g.tokens, got)
	// A pod waits for all of its tokens, but not, once it has them, with one for another.
	if err == nil || g.delivered && len(got) > 0 {
		err = errors.Join(err, i.publishTokens(n, p))
	}
	before := g.failure
	g.failure = ""
	if err != nil {
		g.failure = wire.Line(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if g.failure != before {
		i.enqueueStatus(r) // its status says so, or no longer
	}
	if err == nil {
		g.eventRecorded = false
	}
	if err == nil && n.tokenStreams > 0 {
		i.scheduleRenewal(r, g)
	}
	// What is late for another reason comes without anybody's doing.
	if g.delivered && !g.eventRecorded && slices.ContainsFunc(failed, isPermanent) {
		news = g.failure
	}
	return n.tokenStreams > 0, news
}

// recordTokenFailure says on a pod that runs, once until that heals, which tokens of it are
// refused: its status stays that of the pod.
func (i *tokenIssuer) recordTokenFailure(ctx context.Context, r podRef, pod *corev1.Pod, message string) {
	if !i.events.recordWarning(ctx, pod, ReasonTokenNotIssued, message) {
		return // it is said with the next attempt
	}
	i.clusters.updatePod(r, func(p *podState) {
		if p.pod.UID == pod.UID && p.tokens != nil {
			p.tokens.eventRecorded = true
		}
	})
}

// publishTokens publishes the tokens of a pod, for each of which there is one; n.mu is held.
func (i *tokenIssuer) publishTokens(n *clusterState, p *podState) error {
	r, err := p.encodeTokens()
	if err == nil {
		err = i.sync.Source(n.name, wire.KindPodToken).Put(r)
	}
	p.tokens.delivered = p.tokens.delivered || err == nil
	return err
}

// encodeTokens is what an agent gets of the grants. One that could not be renewed stays as
// it was, here or, if a process before had it, in what the agent has: no volume can be
// made of a Secret that lacks it.
func (p *podState) encodeTokens() (resource.Resource, error) {
	tokens := wire.PodToken{Tokens: make(map[string]string, len(p.tokens.tokens))}
	for name, g := range p.tokens.tokens {
		tokens.Tokens[name] = g.token
	}
	body, err := tokens.Encode()
	return resource.Resource{Key: tokenKey(p).String(), UID: string(p.pod.UID), Body: body}, err
}

// loadTokens makes a body at the moment it is sent. Tokens that have all expired are
// not: those that follow them are.
func (i *tokenIssuer) loadTokens(cluster, key string) (resource.Resource, bool) {
	parsed, err := wire.ParsePodTokenKey(key)
	n := i.clusters.getCluster(cluster)
	if err != nil || n == nil {
		return resource.Resource{}, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	p, ok := n.pods[parsed.PodKey]
	if !ok || string(p.pod.UID) != parsed.UID || p.tokens == nil || p.tokens.allExpired(time.Now()) {
		return resource.Resource{}, false
	}
	r, err := p.encodeTokens()
	return r, err == nil
}

// allExpired tells whether no token is good any more.
func (g *tokenSet) allExpired(now time.Time) bool {
	for _, held := range g.tokens {
		if held.expiresAt.After(now) {
			return false
		}
	}
	return true
}
