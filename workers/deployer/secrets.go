// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package deployer

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/workers/api"
	deploymentv1alpha1 "github.com/spokelet/spokelet/workers/api/deployment/v1alpha1"
	releasev1alpha1 "github.com/spokelet/spokelet/workers/api/release/v1alpha1"
	"github.com/spokelet/spokelet/workers/upload"
	"github.com/spokelet/spokelet/workers/version"
)

// maxSecrets bounds the secrets of a script, in bytes, as an API server does a Secret.
const maxSecrets = 1 << 20

// uploadGracePeriod is how long a Secret may exist before its version is stored.
const uploadGracePeriod = time.Hour

// objectName returns the name of a script as a Kubernetes name.
func objectName(scriptName string) string { return strings.ReplaceAll(scriptName, "_", "-") }

// secretName is that of the Secret of a version that has secrets of its own.
func secretName(v version.Version) string { return objectName(v.Script.ScriptName) + "-" + v.ID }

// inheritBindings adds to a version the secrets and bindings of the previous one that the upload
// keeps or names without a value. It returns the secrets.
func (d *Deployer) inheritBindings(ctx context.Context, a Account, v *version.Version, up *upload.Upload, base *version.Version) (map[string][]byte, error) {
	if base == nil {
		base = &version.Version{}
	}
	held, err := d.getVersionSecret(ctx, a, *base)
	if err != nil {
		return nil, err
	}
	before := held.Data
	secrets := map[string][]byte{}
	own := sets.New[string]()
	for _, b := range v.Script.Bindings {
		own.Insert(b.Name)
	}
	for name, value := range up.Secrets {
		secrets[name] = []byte(value)
		own.Insert(name)
	}
	inherited := sets.New(up.Inherit...)
	for name, value := range before {
		if !own.Has(name) && (inherited.Has(name) || slices.Contains(up.Keep, releasev1alpha1.BindingSecretText)) {
			secrets[name] = value
			inherited.Delete(name)
		}
	}
	for _, b := range base.Script.Bindings {
		if !own.Has(b.Name) && (inherited.Has(b.Name) || slices.Contains(up.Keep, b.Type)) && b.Part == "" {
			v.Script.Bindings = append(v.Script.Bindings, b)
			inherited.Delete(b.Name)
		}
	}
	if inherited.Len() > 0 {
		return nil, &InheritError{Names: sets.List(inherited)}
	}
	return secrets, assignSecret(v, secrets, before, base.Script.SecretRef)
}

// assignSecret sets the Secret of a version: that of the previous version if it has the same values.
func assignSecret(v *version.Version, secrets, before map[string][]byte, beforeRef string) error {
	v.SecretNames = slices.Sorted(maps.Keys(secrets))
	size := 0
	for name, value := range secrets {
		size += len(name) + len(value)
	}
	switch {
	case size > maxSecrets:
		return fmt.Errorf("%w: the secrets have %d bytes together, and the limit is %d", ErrInvalid, size, maxSecrets)
	case len(secrets) == 0:
		v.Script.SecretRef = ""
	case maps.EqualFunc(secrets, before, bytes.Equal):
		v.Script.SecretRef = beforeRef
	default:
		v.Script.SecretRef = secretName(*v)
	}
	return nil
}

// getSecret reads the Secret of a version, if it has the label of the script: users who may write
// WorkerDeployments can name any Secret, and must learn nothing of others.
func (d *Deployer) getSecret(ctx context.Context, a Account, v version.Version, into client.Object) error {
	err := d.config.Client.Get(ctx, types.NamespacedName{Namespace: a.Namespace, Name: v.Script.SecretRef}, into)
	if apierrors.IsNotFound(err) || err == nil && into.GetLabels()[api.LabelScript] != v.Script.ScriptName {
		return fmt.Errorf("%w: version %s: there is no Secret %s with the label %s=%s", ErrInvalid, v.ID, v.Script.SecretRef, api.LabelScript, v.Script.ScriptName)
	}
	if err != nil {
		return classifyHubError(fmt.Errorf("read Secret %s: %w", v.Script.SecretRef, err))
	}
	return nil
}

// getVersionSecret returns the Secret of a version, or an empty one if it names none.
func (d *Deployer) getVersionSecret(ctx context.Context, a Account, v version.Version) (*corev1.Secret, error) {
	var secret corev1.Secret
	if v.Script.SecretRef == "" {
		return &secret, nil
	}
	return &secret, d.getSecret(ctx, a, v, &secret)
}

// getSecretMetadata returns the metadata of the Secret of a version, or nil if it names none.
func (d *Deployer) getSecretMetadata(ctx context.Context, a Account, v version.Version) (*metav1.PartialObjectMetadata, error) {
	if v.Script.SecretRef == "" {
		return nil, nil
	}
	var secret metav1.PartialObjectMetadata
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	return &secret, d.getSecret(ctx, a, v, &secret)
}

// createSecret makes the Secret of a version.
func (d *Deployer) createSecret(ctx context.Context, a Account, v version.Version, data map[string][]byte) (*corev1.Secret, error) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: a.Namespace, Name: v.Script.SecretRef,
			Labels: map[string]string{api.LabelScript: v.Script.ScriptName, api.LabelVersion: v.ID},
		},
		Immutable: new(true), Type: corev1.SecretTypeOpaque, Data: data,
	}
	if err := d.config.Client.Create(ctx, secret); err != nil {
		return nil, classifyHubError(fmt.Errorf("create Secret %s: %w", secret.Name, err))
	}
	return secret, nil
}

// setSecretOwner makes the WorkerDeployment the owner of the Secret of a version, which may be nil.
func (d *Deployer) setSecretOwner(ctx context.Context, wd *deploymentv1alpha1.WorkerDeployment, secret *metav1.PartialObjectMetadata) error {
	if secret == nil || secret.Labels[api.LabelVersion] == "" || len(secret.OwnerReferences) > 0 {
		return nil
	}
	before := secret.DeepCopy()
	secret.OwnerReferences = []metav1.OwnerReference{{
		APIVersion: deploymentv1alpha1.GroupVersion.String(), Kind: "WorkerDeployment", Name: wd.Name, UID: wd.UID,
	}}
	err := d.config.Client.Patch(ctx, secret, client.MergeFrom(before))
	if client.IgnoreNotFound(err) != nil { // without it the operator says so, and the deployment is taken back
		return classifyHubError(fmt.Errorf("own Secret %s: %w", secret.Name, err))
	}
	return nil
}

// deleteSecrets deletes the Secrets of versions of a script but those that are needed.
func (d *Deployer) deleteSecrets(ctx context.Context, a Account, name string, needed sets.Set[string]) error {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := d.config.Client.List(ctx, &list, client.InNamespace(a.Namespace), client.MatchingLabels{api.LabelScript: name}, client.HasLabels{api.LabelVersion}); err != nil {
		return classifyHubError(fmt.Errorf("list Secrets: %w", err))
	}
	for i := range list.Items {
		secret := &list.Items[i]
		if needed.Has(secret.Name) || time.Since(secret.CreationTimestamp.Time) < uploadGracePeriod && needed != nil {
			continue
		}
		if err := d.deleteObject(ctx, "Secret", secret); err != nil {
			return err
		}
	}
	return nil
}

// SecretNames returns the names of the secrets of what is deployed, sorted.
func (d *Deployer) SecretNames(ctx context.Context, a Account, name string) ([]string, error) {
	current, err := d.Current(ctx, a, name)
	return current.SecretNames, err
}

// SetSecrets deploys the script with other secrets: those with a value are set, those without
// one are deleted.
func (d *Deployer) SetSecrets(ctx context.Context, a Account, name string, change map[string]*string, by Author) error {
	current, err := d.getLatestDeployed(ctx, a, name)
	if err != nil {
		return err
	}
	v, err := d.changeSecrets(ctx, a, current, change, by)
	if err != nil || v.ID == current.ID {
		return err
	}
	_, err = d.Deploy(ctx, a, name, v.ID, by, true)
	return err
}

// AddVersion stores a version that is the latest one with other secrets. It is not deployed.
func (d *Deployer) AddVersion(ctx context.Context, a Account, name string, change map[string]*string, by Author) (version.Version, error) {
	latest, err := d.getBaseVersion(ctx, a, name)
	if err == nil && latest == nil {
		err = fmt.Errorf("script %s: %w", name, ErrNotFound)
	}
	if err != nil {
		return version.Version{}, err
	}
	return d.changeSecrets(ctx, a, *latest, change, by)
}

// changeSecrets stores a copy of a version with other secrets. If they do not change it returns the
// version itself.
func (d *Deployer) changeSecrets(ctx context.Context, a Account, from version.Version, change map[string]*string, by Author) (version.Version, error) {
	held, err := d.getVersionSecret(ctx, a, from)
	if err != nil {
		return version.Version{}, err
	}
	if held.Name != "" && held.Labels[api.LabelVersion] == "" {
		return version.Version{}, fmt.Errorf("%w: the secrets of script %s are in Secret %s, which is not changed here: use kubectl", ErrConflict, from.Script.ScriptName, held.Name)
	}
	secrets := applyChange(held.Data, change)
	if maps.EqualFunc(secrets, held.Data, bytes.Equal) {
		return from, nil
	}
	v, err := version.New(by.Name)
	if err != nil {
		return version.Version{}, err
	}
	v.Message, v.Script = by.Message, from.Script
	if err := assignSecret(&v, secrets, nil, ""); err != nil {
		return version.Version{}, err
	}
	return v, d.saveVersion(ctx, a, v, secrets, nil)
}

// applyChange returns secrets as they are after a change.
func applyChange(before map[string][]byte, change map[string]*string) map[string][]byte {
	secrets := map[string][]byte{}
	maps.Copy(secrets, before)
	for key, value := range change {
		if value == nil {
			delete(secrets, key)
			continue
		}
		secrets[key] = []byte(*value)
	}
	return secrets
}
