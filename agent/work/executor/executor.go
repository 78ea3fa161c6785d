// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/dynamic"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/spokelet/spokelet/internal/rbacwatch"
)

// Config of a Checker.
type Config struct {
	// REST reaches the API server as one who may create SubjectAccessReviews. The
	// credentials beneath its impersonation, if it has one, must be allowed to
	// impersonate the service accounts that works name. Required.
	REST *rest.Config
	// Caches enables the cache of permissions, which needs the right to list and watch
	// roles and bindings in all namespaces.
	Caches bool
	// Changed is called when roles or bindings of a namespace have changed; the empty
	// namespace stands for all, also after changes that may have been missed. It
	// needs Caches, must not block, and may be nil. The change may take effect in the
	// API server a moment later.
	Changed func(namespace string)
	// Logger of the watches; the zero value is silent.
	Logger logr.Logger
}

// Validate returns an error if a required field is missing.
func (c *Config) Validate() error {
	if c.REST == nil {
		return errors.New("field REST is required")
	}
	return nil
}

// changed is never nil.
func (c *Config) changed() func(namespace string) {
	if c.Changed == nil {
		return func(string) {}
	}
	return c.Changed
}

// Request is a write, or a read, to be checked.
type Request struct {
	// Namespace and Name of the service account.
	Namespace, Name string
	// Resource and the name of the object.
	Resource                    schema.GroupVersionResource
	ObjectNamespace, ObjectName string
	// Object is what would be written; it is used for roles and bindings only, and
	// not changed.
	Object *unstructured.Unstructured
	// Delete is set if the object would be deleted later.
	Delete bool
	// ReadOnly is set if the object would be read and never written.
	ReadOnly bool
}

func (r Request) user() string { return "system:serviceaccount:" + r.Namespace + ":" + r.Name }

// NotAllowedError is returned if the service account may not write the object, or not read it
// if the request is ReadOnly.
type NotAllowedError struct {
	Resource schema.GroupResource
	// Namespace and Name of the object.
	Namespace, Name string
	// Escalation is set if it may write such objects, but not grant the rights in this one.
	Escalation bool
	// Cause is the error of the dry run, if there was one.
	Cause error
}

// Error has the text of OCM's agent.
func (e *NotAllowedError) Error() string {
	text := fmt.Sprintf("not allowed to apply the resource %s %s, %s %s", e.Resource.Group, e.Resource.Resource, e.Namespace, e.Name)
	if e.Escalation {
		text += ", error: permission escalation"
	}
	return text
}

// Unwrap returns the error of the dry run.
func (e *NotAllowedError) Unwrap() error { return e.Cause }

// Checker checks requests with the API server of a cluster.
type Checker struct {
	reviews authorizationclient.SubjectAccessReviewInterface
	// clientFor returns a client that impersonates a user.
	clientFor func(user string) (dynamic.Interface, error)
	cache     *allowedCache // nil without caches
	stop      func()
}

// New returns a Checker, which must be closed.
func New(cfg Config) (*Checker, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("executor: %w", err)
	}
	base := rest.CopyConfig(cfg.REST)
	base.Impersonate = rest.ImpersonationConfig{}
	base.QPS, base.Burst, base.RateLimiter = -1, 0, nil // priority and fairness is the limiter
	pool, err := rest.HTTPClientFor(base)
	if err != nil {
		return nil, fmt.Errorf("executor: %w", err)
	}
	own := &http.Client{Transport: pool.Transport, Timeout: pool.Timeout}
	if i := cfg.REST.Impersonate; i.UserName != "" {
		own.Transport = newImpersonatingTransport(pool, i)
	}
	reviews, err := authorizationclient.NewForConfigAndClient(base, own)
	if err != nil {
		return nil, fmt.Errorf("executor: %w", err)
	}
	c := &Checker{
		reviews: reviews.SubjectAccessReviews(),
		clientFor: func(user string) (dynamic.Interface, error) {
			acting := &http.Client{Transport: newImpersonatingTransport(pool, rest.ImpersonationConfig{UserName: user}), Timeout: pool.Timeout}
			return dynamic.NewForConfigAndClient(base, acting)
		},
	}
	stopWatches := func() {}
	if cfg.Caches {
		client, err := metadata.NewForConfigAndClient(base, own)
		if err != nil {
			return nil, fmt.Errorf("executor: %w", err)
		}
		c.cache = newAllowedCache()
		stopWatches = rbacwatch.Watch(client, watchSink{allowedCache: c.cache, change: cfg.changed()}, cfg.Logger)
	}
	c.stop = func() {
		stopWatches()
		utilnet.CloseIdleConnectionsFor(pool.Transport)
	}
	return c, nil
}

// watchSink keeps the memory, and passes changes on.
type watchSink struct {
	*allowedCache
	change func(namespace string)
}

func (s watchSink) WatchLost()        { s.countLostWatch() }
func (s watchSink) WatchEstablished() { s.countFoundWatch() }

func (s watchSink) RightsChanged(namespace string) {
	s.invalidate(namespace)
	s.change(namespace)
}

func newImpersonatingTransport(pool *http.Client, i rest.ImpersonationConfig) http.RoundTripper {
	return transport.NewImpersonatingRoundTripper(
		transport.ImpersonationConfig{UserName: i.UserName, UID: i.UID, Groups: i.Groups, Extra: i.Extra}, pool.Transport)
}

// Close stops the watches and closes idle connections. No Check may follow.
func (c *Checker) Close() { c.stop() }

// IsWatching reports whether changes of rights are observed: with caches, while roles and
// bindings can be watched.
func (c *Checker) IsWatching() bool { return c.cache.isWatching() }

// LastChange returns when roles or bindings last changed, or may have changed unobserved;
// zero without caches. The change may not have taken effect in the API server yet.
func (c *Checker) LastChange() time.Time { return c.cache.lastChange() }

// Check returns nil if the service account may do everything that the request needs,
// and a [*NotAllowedError] if it may not. After any other error, of a failed review,
// it may be retried.
func (c *Checker) Check(ctx context.Context, r Request) error {
	what, err := newCacheKey(r)
	if err != nil {
		return err
	}
	began, known := c.cache.lookup(what)
	if known {
		return nil
	}
	if err := c.reviewAccess(ctx, r); err != nil {
		return err
	}
	if r.grantsRights() {
		if err := c.dryRun(ctx, r); err != nil {
			return err
		}
	}
	c.cache.add(began, what)
	return nil
}

// verbs returns the verbs that the account needs for the request.
func (r Request) verbs() []string {
	if r.ReadOnly {
		return []string{"get"}
	}
	verbs := []string{"create", "update", "patch", "get"}
	if r.Delete {
		verbs = append(verbs, "delete")
	}
	return verbs
}

// reviewAccess reviews every verb.
func (c *Checker) reviewAccess(ctx context.Context, r Request) error {
	account := authenticationv1.UserInfo{
		Username: r.user(),
		Groups:   []string{"system:serviceaccounts", "system:authenticated", "system:serviceaccounts:" + r.Namespace},
	}
	for _, verb := range r.verbs() {
		allowed, err := rbacwatch.IsAllowed(ctx, c.reviews, account, authorizationv1.ResourceAttributes{
			Verb: verb, Group: r.Resource.Group, Version: r.Resource.Version, Resource: r.Resource.Resource,
			Namespace: r.ObjectNamespace, Name: r.ObjectName,
		})
		if err != nil {
			return fmt.Errorf("review access of %s: %w", r.user(), err)
		}
		if !allowed {
			return notAllowed(r, false, nil)
		}
	}
	return nil
}

func notAllowed(r Request, escalation bool, cause error) error {
	return &NotAllowedError{
		Resource: r.Resource.GroupResource(), Namespace: r.ObjectNamespace, Name: r.ObjectName, Escalation: escalation, Cause: cause,
	}
}

// grantsRights reports whether the request writes a kind with which an account could grant
// itself rights.
func (r Request) grantsRights() bool {
	return !r.ReadOnly && r.Resource.Group == rbacv1.GroupName &&
		slices.Contains([]string{"roles", "rolebindings", "clusterroles", "clusterrolebindings"}, r.Resource.Resource)
}

// dryRun writes the object as the account in a dry run. The API server checks the
// rights in a role or binding before it checks whether the object exists; if it
// exists, an update must pass as well. Any other error of the write does not decide
// the check.
func (c *Checker) dryRun(ctx context.Context, r Request) error {
	client, err := c.clientFor(r.user())
	if err != nil {
		return fmt.Errorf("client as %s: %w", r.user(), err)
	}
	obj := dryRunObject(r)
	resource := client.Resource(r.Resource).Namespace(r.ObjectNamespace)
	_, err = resource.Create(ctx, obj, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if apierrors.IsAlreadyExists(err) {
		_, err = resource.Update(ctx, obj, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	if apierrors.IsForbidden(err) {
		return notAllowed(r, true, err)
	}
	if err != nil {
		return fmt.Errorf("dry run as %s: %w", r.user(), err)
	}
	return nil
}

// dryRunObject returns the content of the object, with its name and labels.
func dryRunObject(r Request) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: maps.Clone(r.Object.Object)}
	metadata := map[string]any{"name": r.ObjectName}
	if r.ObjectNamespace != "" {
		metadata["namespace"] = r.ObjectNamespace
	}
	given, _ := r.Object.Object["metadata"].(map[string]any)
	for _, name := range []string{"labels", "annotations"} { // aggregated roles select others by labels
		if value := given[name]; value != nil {
			metadata[name] = value
		}
	}
	obj.Object["metadata"] = metadata
	return obj
}

// A key is what one yes is about.
type cacheKey struct {
	namespace, name             string
	resource                    schema.GroupVersionResource
	objectNamespace, objectName string
	deletion, readOnly          bool
	content                     [sha256.Size]byte // of roles and bindings
}

// newCacheKey fails for a role or binding without content.
func newCacheKey(r Request) (cacheKey, error) {
	k := cacheKey{
		namespace: r.Namespace, name: r.Name, resource: r.Resource,
		objectNamespace: r.ObjectNamespace, objectName: r.ObjectName, deletion: r.Delete, readOnly: r.ReadOnly,
	}
	if !r.grantsRights() {
		return k, nil
	}
	if r.Object == nil || r.Object.Object == nil {
		return k, errNoContent
	}
	text, err := json.Marshal(dryRunObject(r).Object)
	if err != nil {
		return k, fmt.Errorf("encode %s %s: %w", r.Resource.Resource, r.ObjectName, err)
	}
	k.content = sha256.Sum256(text)
	return k, nil
}

var errNoContent = errors.New("executor: a role or binding cannot be checked without its content")
