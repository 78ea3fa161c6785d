// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package deployer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accountv1alpha1 "github.com/spokelet/spokelet/workers/api/account/v1alpha1"
	deploymentv1alpha1 "github.com/spokelet/spokelet/workers/api/deployment/v1alpha1"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/placement"
	"github.com/spokelet/spokelet/workers/quota"
	"github.com/spokelet/spokelet/workers/script"
	"github.com/spokelet/spokelet/workers/upload"
	"github.com/spokelet/spokelet/workers/version"
)

var (
	// ErrNotFound: the account has no such script.
	ErrNotFound = errors.New("the account has no such script")
	// ErrVersionNotFound: the script has no such version.
	ErrVersionNotFound = errors.New("the script has no such version")
	// ErrNotLatest: the latest version of the script is not the one that is deployed.
	ErrNotLatest = errors.New("the latest version of the script is not deployed")
	// ErrConflict: something that somebody else has written is in the way. It was not changed.
	ErrConflict = errors.New("conflict")
	// ErrInvalid: the script, or what is asked of it, cannot be served.
	ErrInvalid = errors.New("invalid")
	// ErrRejected: workerd rejects the script. What was served before still is.
	ErrRejected = errors.New("workerd rejects the script")
	// ErrPending: what was asked for was written and is not served yet.
	ErrPending = errors.New("not served yet")
	// ErrNotOpened: the hub does not let this process act in the account's namespace.
	ErrNotOpened = errors.New("the account is not opened to deployments")
)

// SecretsChangedError says that a version has other secrets than what is deployed.
type SecretsChangedError struct{ Names []string }

// Error returns the message.
func (e *SecretsChangedError) Error() string {
	return "The following secrets have changed: " + strings.Join(e.Names, ", ")
}

// InheritError says that an upload names bindings without a value that the latest version has
// not. wrangler does so for required secrets, and for resources that it is to make by itself.
type InheritError struct{ Names []string }

// Error implements error. wrangler knows it by how it begins, and says what to do about a secret.
func (e *InheritError) Error() string {
	return fmt.Sprintf("inherit binding '%s' is invalid: the latest version has no binding %s, and what wrangler would provision for one without an id "+
		"(KV, R2, D1, queues, AI Search, Agent Memory, dispatch namespaces, Flagship) is not supported", e.Names[0], strings.Join(e.Names, ", "))
}

// Unwrap returns [ErrInvalid].
func (e *InheritError) Unwrap() error { return ErrInvalid }

const (
	// minVersions is how many versions of a script are kept, whoever needs them.
	minVersions = 20
	// defaultTimeout is how long a deployment is waited for.
	defaultTimeout = 2 * time.Minute
)

// Versions are those in the object store.
type Versions interface {
	Save(ctx context.Context, account string, v version.Version, files []version.File) error
	Load(ctx context.Context, account, script, id string) (version.Version, error)
	Latest(ctx context.Context, account, script string) (version.Version, error)
}

// History is the versions that there are.
type History interface {
	List(ctx context.Context, account, script string) ([]version.Summary, error)
	Prune(ctx context.Context, account, script string, needs version.Retention) ([]version.Summary, error)
	Remove(ctx context.Context, account, script, id string) error
	RemoveAll(ctx context.Context, account, script string) error
}

// Config is what a Deployer is made of.
type Config struct {
	// Client reads and writes the hub, without a cache.
	Client client.WithWatch
	// Versions and History are the object store, whose bucket is Bucket.
	Versions Versions
	History  History
	Bucket   string
	// Memory bounds what requests read, by whatever has its [quota.Transport]. Default 128 MiB, of
	// which an account may have 32.
	Memory *quota.Limiter
	// Timeout is how long a deployment is waited for. Default 2 min.
	Timeout time.Duration
	// Log has what no developer has to know.
	Log logr.Logger
}

// Deployer deploys scripts. Its methods may be called concurrently.
type Deployer struct{ config Config }

// New returns a Deployer.
func New(config Config) *Deployer {
	if config.Timeout == 0 {
		config.Timeout = defaultTimeout
	}
	if config.Memory == nil {
		config.Memory = quota.New(quota.DefaultTotal, quota.DefaultAccount)
	}
	return &Deployer{config: config}
}

// Account is a tenant of the hub.
type Account struct {
	// ID of the account, and the Namespace that has it.
	ID, Namespace string
}

// WithMemory returns the context for a request of an account: bytes that are read with it count until
// it ends.
func (d *Deployer) WithMemory(ctx context.Context, a Account) context.Context {
	return d.config.Memory.WithAccount(ctx, a.ID)
}

// fieldScript is the field that the API server selects WorkerDeployments by.
const fieldScript = "spec.template.scriptName"

// getWorkerDeployment returns the WorkerDeployment of a script, the oldest as the operator has it.
func (d *Deployer) getWorkerDeployment(ctx context.Context, a Account, name string) (*deploymentv1alpha1.WorkerDeployment, error) {
	var list deploymentv1alpha1.WorkerDeploymentList
	if err := d.config.Client.List(ctx, &list, client.InNamespace(a.Namespace), client.MatchingFields{fieldScript: name}); err != nil {
		return nil, classifyHubError(fmt.Errorf("list WorkerDeployments: %w", err))
	}
	var first *deploymentv1alpha1.WorkerDeployment
	for i := range list.Items {
		wd := &list.Items[i]
		if wd.Spec.Template.ScriptName == name && wd.DeletionTimestamp.IsZero() && (first == nil || wd.CreationTimestamp.Before(&first.CreationTimestamp)) {
			first = wd
		}
	}
	if first == nil {
		return nil, fmt.Errorf("script %s: %w", name, ErrNotFound)
	}
	return first, nil
}

// Exists returns nil or [ErrNotFound].
func (d *Deployer) Exists(ctx context.Context, a Account, name string) error {
	_, err := d.getWorkerDeployment(ctx, a, name)
	return err
}

// Host returns the host name under which a script is reached in the clusters: the account's, or
// that of its Service.
func (d *Deployer) Host(ctx context.Context, a Account, name string) (string, error) {
	var list accountv1alpha1.WorkerAccountList
	if err := d.config.Client.List(ctx, &list, client.InNamespace(a.Namespace)); err != nil {
		return "", classifyHubError(fmt.Errorf("list WorkerAccounts: %w", err))
	}
	for i := range list.Items {
		if host := list.Items[i].Status.Host; host != "" {
			return host, nil
		}
	}
	return script.ServiceName(name) + "." + placement.Name(a.ID) + ".svc", nil
}

// Upload stores a version. It is not deployed.
func (d *Deployer) Upload(ctx context.Context, a Account, name, author string, up *upload.Upload) (version.Version, error) {
	if err := script.CheckName(name); err != nil {
		return version.Version{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if up.Script.CompatibilityDate == "" {
		up.Script.CompatibilityDate = defaultDate
	}
	base, err := d.getBaseVersion(ctx, a, name)
	if err != nil {
		return version.Version{}, err
	}
	v, err := version.New(author)
	if err != nil {
		return version.Version{}, err
	}
	v.Message, v.Tag = up.Message, up.Tag
	v.Script = up.Script
	v.Script.ScriptName, v.Script.ScriptURLs = name, []string{version.URL(d.config.Bucket, a.ID, name, v.ID)}
	secrets, err := d.inheritBindings(ctx, a, &v, up, base)
	if err != nil {
		return version.Version{}, err
	}
	if err := validate(v, up.Files); err != nil {
		return version.Version{}, err
	}
	if err := d.saveVersion(ctx, a, v, secrets, toVersionFiles(up.Files)); err != nil {
		return version.Version{}, err
	}
	d.removeUnused(ctx, a, name)
	return v, nil
}

// removeUnused removes unneeded versions and secrets. After a failure the next call removes them.
func (d *Deployer) removeUnused(ctx context.Context, a Account, name string) {
	var (
		templates []version.Summary
		releases  []deployedRelease
	)
	wd, err := d.getWorkerDeployment(ctx, a, name)
	if err == nil {
		templates = append(templates, d.templateVersion(a, wd).Summary)
		releases, err = d.listReleases(ctx, a, wd)
	}
	for _, r := range releases {
		templates = append(templates, r.Summary)
	}
	if err == nil || errors.Is(err, ErrNotFound) {
		err = d.pruneVersions(ctx, a, name, templates)
	}
	if err != nil {
		d.config.Log.Error(err, "old versions cannot be removed", "account", a.ID, "script", name)
	}
}

// defaultDate is the compatibility date that Cloudflare assumes if a script has none.
const defaultDate = "2021-11-02"

// getBaseVersion returns the version that an upload changes: the latest one, or else the deployed
// one. It is nil if there is none.
func (d *Deployer) getBaseVersion(ctx context.Context, a Account, name string) (*version.Version, error) {
	latest, err := d.config.Versions.Latest(ctx, a.ID, name)
	if err == nil {
		return &latest, nil
	}
	if !errors.Is(err, version.ErrNotFound) {
		return nil, err
	}
	current, err := d.Current(ctx, a, name)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return &current, err
}

// validate runs the operator's checks before anything is stored. The content has no ETag yet.
func validate(v version.Version, files []upload.File) error {
	modules := make([]releasev1alpha1.Module, 0, len(files))
	for _, f := range files {
		modules = append(modules, releasev1alpha1.Module{Name: f.Name, Key: f.Name, ETag: "unknown", Size: int64(len(f.Content))})
	}
	if _, err := script.New(v.Script, modules, v.SecretNames); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

func toVersionFiles(uploaded []upload.File) []version.File {
	all := make([]version.File, 0, len(uploaded))
	for _, f := range uploaded {
		all = append(all, version.File{Name: f.Name, Type: f.Type, Content: f.Content})
	}
	return all
}

// saveVersion stores a version, its secrets first. After an error neither exists.
func (d *Deployer) saveVersion(ctx context.Context, a Account, v version.Version, secrets map[string][]byte, files []version.File) error {
	if v.Script.SecretRef != secretName(v) {
		return d.config.Versions.Save(ctx, a.ID, v, files)
	}
	secret, err := d.createSecret(ctx, a, v, secrets)
	if err != nil {
		return err
	}
	if err := d.config.Versions.Save(ctx, a.ID, v, files); err != nil {
		d.deleteUnsavedSecret(context.WithoutCancel(ctx), a, v, secret)
		return err
	}
	return nil
}

// deleteUnsavedSecret removes the Secret of a version that was not stored. The description goes first: a
// store may have written it without having answered, and the next upload would need the Secret.
func (d *Deployer) deleteUnsavedSecret(ctx context.Context, a Account, v version.Version, secret *corev1.Secret) {
	err := d.config.History.Remove(ctx, a.ID, v.Script.ScriptName, v.ID)
	if err == nil {
		err = d.deleteObject(ctx, "Secret", secret)
	}
	if err != nil {
		d.config.Log.Error(err, "the Secret of a version that was not stored cannot be removed", "account", a.ID, "script", v.Script.ScriptName, "version", v.ID)
	}
}

// Delete removes a script with its versions and secrets.
func (d *Deployer) Delete(ctx context.Context, a Account, name string) error {
	wd, err := d.getWorkerDeployment(ctx, a, name)
	if err != nil {
		return err
	}
	if err := d.deleteObject(ctx, "WorkerDeployment", wd); err != nil {
		return err
	}
	if err := d.config.History.RemoveAll(ctx, a.ID, name); err != nil {
		return err
	}
	return d.deleteSecrets(ctx, a, name, nil)
}

// deleteObject deletes an object with the UID that was read. It may not exist any more.
func (d *Deployer) deleteObject(ctx context.Context, kind string, obj client.Object) error {
	uid := obj.GetUID()
	err := client.IgnoreNotFound(d.config.Client.Delete(ctx, obj, client.Preconditions{UID: &uid}))
	if err != nil {
		return classifyHubError(fmt.Errorf("delete %s %s: %w", kind, obj.GetName(), err))
	}
	return nil
}

// pruneVersions removes versions and secrets that neither the WorkerDeployment nor its releases use.
func (d *Deployer) pruneVersions(ctx context.Context, a Account, name string, inUse []version.Summary) error {
	needs := version.Retention{KeepFolders: sets.New[string](), KeepNewest: minVersions}
	needed := sets.New[string]()
	for _, s := range inUse {
		needs.KeepFolders.Insert(s.Folders...)
		needed.Insert(s.SecretRef)
	}
	needs.KeepVersions = func(all []version.Summary) sets.Set[string] {
		ids := sets.New[string]()
		for _, s := range inUse {
			if v := findByTemplate(all, s.Template); v != nil {
				ids.Insert(v.ID)
			}
		}
		return ids
	}
	kept, err := d.config.History.Prune(ctx, a.ID, name, needs)
	if err != nil {
		return err
	}
	for _, s := range kept {
		needed.Insert(s.SecretRef)
	}
	return d.deleteSecrets(ctx, a, name, needed)
}

// classifyHubError wraps an error of the hub in one of the package.
func classifyHubError(err error) error {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w: %w", ErrNotOpened, err)
	case apierrors.IsInvalid(err):
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return err
}
