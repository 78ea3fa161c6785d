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

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/podrefs"
	"github.com/spokelet/spokelet/tunnel/resource"
)

const (
	// ReasonTokenNotIssued: a token that the pod asks for cannot be had.
	ReasonTokenNotIssued = "TokenNotIssued"

	// A token is renewed when four fifths of its life, or renewAfter, are over, as by
	// a kubelet; and never within renewSoonest, however the clocks differ.
	renewAfter   = 24 * time.Hour
	renewSoonest = 10 * time.Second
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

// issues tells whether the tokens that a pod asks for are those of the hub.
func (k *Keeper) issues(pod *corev1.Pod) bool {
	return k.config.Tokens.allows(pod.Namespace) && len(podrefs.Tokens(&pod.Spec)) > 0
}

// grants are the tokens of one pod; its node's mu guards them.
type grants struct {
	by map[string]grant
	// handed: the pod has had all of them, from us or from a hub process before.
	handed bool
	// failure says why one could not be had when that was last tried, and warned tells
	// that an event of the pod does, too.
	failure string
	warned  bool
	// timer waits for the first that is due; nil while none is waited for.
	timer *time.Timer
}

// grant is one token.
type grant struct {
	token          string
	renew, expires time.Time
}

func (g *grants) stop() {
	if g != nil && g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
}

func tokensOf(h *held) wire.PodTokenKey {
	return wire.PodTokenKey{PodKey: keyOf(h.pod), UID: string(h.pod.UID)}
}

// asked has tokens issued for the pods of a cluster whose agent asks for them, and
// renewed until it ceases to. What was issued before is kept: it is what a reconnect
// need not bring.
func (k *Keeper) asked(cluster string) (ceased func()) {
	n := k.change(cluster, func(n *node) {
		n.askers++
		for key, h := range n.pods {
			k.entitle(n, key, h)
			if h.grants != nil {
				k.tokenQueue.Add(ref{node: n.name, key: key})
			}
		}
	})
	return func() {
		n.mu.Lock()
		n.askers--
		if n.askers == 0 {
			for _, h := range n.pods {
				h.grants.stop()
			}
		}
		n.mu.Unlock()
		k.drop(n)
	}
}

// tokensListed: the pods are known, and with that what tokens there may be; n.mu is
// held. An agent keeps those that it has until it gets others.
func (k *Keeper) tokensListed(n *node) {
	if k.config.Tokens.Issue {
		k.config.Sync.Source(n.name, wire.KindPodToken).Complete()
	}
}

// entitle begins to have tokens issued for a pod, or ends it with the pod; n.mu is
// held.
func (k *Keeper) entitle(n *node, key wire.PodKey, h *held) {
	switch {
	case !h.sent || !h.issued:
	case ended(h.pod.Status.Phase):
		k.revoke(n, h)
	case h.grants != nil:
		k.overtaken(n, h)
	case n.askers > 0:
		// A pod that is in its cluster was made with all of its tokens there.
		h.grants = &grants{by: map[string]grant{}, handed: seen(h.pod)}
		k.tokenQueue.Add(ref{node: n.name, key: key})
	}
}

// overtaken hands out what there is when a pod turns out to be in its cluster while it
// waits for its tokens: a process before had published them; n.mu is held.
func (k *Keeper) overtaken(n *node, h *held) {
	if h.grants.handed || !seen(h.pod) {
		return
	}
	h.grants.handed = true
	if len(h.grants.by) == 0 {
		return
	}
	if err := k.hand(n, h); err != nil {
		k.config.Logger.Error(err, "cannot send the tokens of a pod", "node", n.name, "pod", keyOf(h.pod).String())
	}
}

// revoke takes the tokens of a pod back; n.mu is held.
func (k *Keeper) revoke(n *node, h *held) {
	if h.grants == nil {
		return
	}
	h.grants.stop()
	h.grants = nil
	if !n.muted {
		k.config.Sync.Source(n.name, wire.KindPodToken).Delete(tokensOf(h).String())
	}
}

// unissued says of a pod that waits for its tokens why there are none; its node's mu
// is held.
func (h *held) unissued() *wire.PodStatus {
	pod := h.latest()
	if h.grants == nil || h.grants.failure == "" || h.grants.handed || seen(pod) || pod.DeletionTimestamp != nil || h.report.tellsOfOne() {
		return nil
	}
	return &wire.PodStatus{Reason: ReasonTokenNotIssued, Message: h.grants.failure, Retried: true, Generation: pod.Generation}
}

func (k *Keeper) nextTokens(ctx context.Context) bool {
	r, quit := k.tokenQueue.Get()
	if quit {
		return false
	}
	defer k.tokenQueue.Done(r)
	pod, due := k.dueTokens(r)
	if len(due) == 0 {
		k.tokenQueue.Forget(r)
		return true
	}
	got, failed := k.issue(ctx, pod, due)
	if len(failed) == 0 {
		k.tokenQueue.Forget(r)
	}
	wanted, news := k.issuedTokens(r, pod, got, failed)
	if news != "" {
		k.warnOfTokens(ctx, r, pod, news)
	}
	if wanted && len(failed) > 0 {
		k.tokenQueue.AddRateLimited(r)
		k.config.Logger.V(1).Info("tokens of a pod are asked for again", "node", r.node, "pod", r.key.String(), "err", errors.Join(failed...).Error())
	}
	return true
}

// dueTokens returns what is to be asked for now, and for which pod. When there is
// nothing it is waited for.
func (k *Keeper) dueTokens(r ref) (*corev1.Pod, []podrefs.Token) {
	n := k.find(r.node)
	if n == nil {
		return nil, nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	h, ok := n.pods[r.key]
	if !ok || n.muted || n.askers == 0 || h.grants == nil {
		return nil, nil
	}
	now := time.Now()
	var due []podrefs.Token
	for _, t := range podrefs.Tokens(&h.pod.Spec) {
		if g, ok := h.grants.by[t.Name]; !ok || !now.Before(g.renew) {
			due = append(due, t)
		}
	}
	if len(due) == 0 {
		k.await(r, h.grants)
	}
	return h.pod, due
}

// await asks for the token that is due first when it is; the node's mu is held.
func (k *Keeper) await(r ref, g *grants) {
	g.stop()
	first := time.Time{}
	for _, held := range g.by {
		if first.IsZero() || held.renew.Before(first) {
			first = held.renew
		}
	}
	g.timer = time.AfterFunc(time.Until(first), func() { k.tokenQueue.Add(r) })
}

// issue asks for tokens. Those that it got it returns with errors too: one that is
// refused, as for its audience, is no reason to let the others expire.
func (k *Keeper) issue(ctx context.Context, pod *corev1.Pod, due []podrefs.Token) (got map[string]grant, failed []error) {
	got = map[string]grant{}
	if len(due) > wire.PodTokensMax {
		return got, []error{errTooManyTokens}
	}
	for _, t := range due {
		g, err := k.request(ctx, pod, t)
		if err != nil {
			k.metrics.tokens.WithLabelValues(resultError).Inc()
			failed = append(failed, err)
			continue
		}
		k.metrics.tokens.WithLabelValues(resultIssued).Inc()
		got[t.Name] = g
	}
	return got, failed
}

// request asks for one token, which is good while there is that very pod.
func (k *Keeper) request(ctx context.Context, pod *corev1.Pod, t podrefs.Token) (grant, error) {
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
	answer, err := k.config.Client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return grant{}, fmt.Errorf("%s: %w", about, err)
	}
	if answer.Status.Token == "" {
		return grant{}, fmt.Errorf("%s: %w", about, errEmptyToken)
	}
	life := time.Duration(t.ExpirationSeconds) * time.Second
	if granted := answer.Spec.ExpirationSeconds; granted != nil {
		life = time.Duration(*granted) * time.Second
	}
	expires := answer.Status.ExpirationTimestamp.Time
	return grant{token: answer.Status.Token, expires: expires, renew: renewal(time.Now(), expires, life)}, nil
}

// renewal is when a token is to be replaced.
func renewal(now, expires time.Time, life time.Duration) time.Time {
	after := min(max(life, 0)/5*4, renewAfter)
	early := rand.N(after/renewSpread + 1) //nolint:gosec // spreads load, hides nothing
	at := expires.Add(after - early - life)
	if soonest := now.Add(renewSoonest); at.Before(soonest) {
		return soonest
	}
	return at
}

// issuedTokens takes what came of asking for tokens, and reports whether anybody
// still wants them, and what an event is to say of a pod that runs, if anything.
func (k *Keeper) issuedTokens(r ref, pod *corev1.Pod, got map[string]grant, failed []error) (wanted bool, news string) {
	n := k.find(r.node)
	if n == nil {
		return false, ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	h, ok := n.pods[r.key]
	if !ok || n.muted || h.pod.UID != pod.UID || h.grants == nil {
		return false, ""
	}
	g, err := h.grants, errors.Join(failed...)
	maps.Copy(g.by, got)
	// A pod waits for all of its tokens, but not, once it has them, with one for another.
	if err == nil || g.handed && len(got) > 0 {
		err = errors.Join(err, k.hand(n, h))
	}
	before := g.failure
	g.failure = ""
	if err != nil {
		g.failure = wire.Line(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if g.failure != before {
		k.queue.Add(r) // its status says so, or no longer
	}
	if err == nil {
		g.warned = false
	}
	if err == nil && n.askers > 0 {
		k.await(r, g)
	}
	// What is late for another reason comes without anybody's doing.
	if g.handed && !g.warned && slices.ContainsFunc(failed, hopeless) {
		news = g.failure
	}
	return n.askers > 0, news
}

// warnOfTokens says on a pod that runs, once until that heals, which tokens of it are
// refused: its status stays that of the pod.
func (k *Keeper) warnOfTokens(ctx context.Context, r ref, pod *corev1.Pod, message string) {
	if !k.warn(ctx, pod, ReasonTokenNotIssued, message) {
		return // it is said with the next attempt
	}
	k.withPod(r, func(h *held) {
		if h.pod.UID == pod.UID && h.grants != nil {
			h.grants.warned = true
		}
	})
}

// hand publishes the tokens of a pod, for each of which there is one; n.mu is held.
func (k *Keeper) hand(n *node, h *held) error {
	r, err := h.tokens()
	if err == nil {
		err = k.config.Sync.Source(n.name, wire.KindPodToken).Put(r)
	}
	h.grants.handed = h.grants.handed || err == nil
	return err
}

// tokens is what an agent gets of the grants. One that could not be renewed stays as
// it was, here or, if a process before had it, in what the agent has: no volume can be
// made of a Secret that lacks it.
func (h *held) tokens() (resource.Resource, error) {
	tokens := wire.PodToken{Tokens: make(map[string]string, len(h.grants.by))}
	for name, g := range h.grants.by {
		tokens.Tokens[name] = g.token
	}
	body, err := tokens.Encode()
	return resource.Resource{Key: tokensOf(h).String(), UID: string(h.pod.UID), Body: body}, err
}

// loadTokens makes a body at the moment it is sent. Tokens that have all expired are
// not: those that follow them are.
func (k *Keeper) loadTokens(cluster, key string) (resource.Resource, bool) {
	parsed, err := wire.ParsePodTokenKey(key)
	n := k.find(cluster)
	if err != nil || n == nil {
		return resource.Resource{}, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	h, ok := n.pods[parsed.PodKey]
	if !ok || string(h.pod.UID) != parsed.UID || h.grants == nil || h.grants.expired(time.Now()) {
		return resource.Resource{}, false
	}
	r, err := h.tokens()
	return r, err == nil
}

// expired tells whether no token is good any more.
func (g *grants) expired(now time.Time) bool {
	for _, held := range g.by {
		if held.expires.After(now) {
			return false
		}
	}
	return true
}
