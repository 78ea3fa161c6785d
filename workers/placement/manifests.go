// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/workers/api"
)

// labelEnforce is that of the Pod Security admission.
const labelEnforce = "pod-security.kubernetes.io/enforce"

// manifests are the objects in the order in which they are needed.
func (p Placement) manifests(revision string) ([]workv1.Manifest, error) {
	open := p.publicObjects(revision)
	secrets := p.secrets()
	objects := append(append([]runtime.Object{open[0]}, secrets...), open[1:]...)
	manifests := make([]workv1.Manifest, 0, len(objects))
	size := SizeError{Account: p.Account, Limit: p.Options.MaxBytes}
	for i, obj := range objects {
		raw, err := encode(obj)
		if err != nil {
			return nil, err
		}
		manifests = append(manifests, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: raw}})
		size.Bytes += len(raw)
		if 1 <= i && i <= len(secrets) {
			size.Secrets += len(raw)
		}
	}
	if size.Bytes > size.Limit {
		return nil, &size
	}
	kept := p.retainedSecrets(revision, secrets, size.Limit-size.Bytes)
	return append(manifests, kept...), nil
}

// encode writes an object without what its type adds to every object: a status, which is
// the cluster's.
func encode(obj runtime.Object) ([]byte, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", obj.GetObjectKind().GroupVersionKind().Kind, err)
	}
	delete(content, "status")
	raw, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", obj.GetObjectKind().GroupVersionKind().Kind, err)
	}
	return raw, nil
}

// namespace is the account's in the cluster. It goes with the work.
func (p Placement) namespace() runtime.Object {
	return &corev1.Namespace{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: Name(p.Account), Labels: map[string]string{
			api.LabelAccount: p.Account, labelEnforce: "restricted",
		}},
	}
}

func (p Placement) pullSecretName() string { return p.deploymentName() + "-pull" }

// secrets are what the image is read with, and what the releases have.
func (p Placement) secrets() []runtime.Object {
	kind := metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}
	var all []runtime.Object
	if len(p.PullSecret) > 0 {
		all = append(all, &corev1.Secret{
			TypeMeta: kind, ObjectMeta: p.objectMeta(p.pullSecretName(), p.labels()),
			Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: p.PullSecret},
		})
	}
	for _, w := range p.Bundle.Spec.Workers {
		if w.SecretRef == "" {
			continue
		}
		// Never changed: a release with other secrets is another release.
		all = append(all, &corev1.Secret{
			TypeMeta: kind, ObjectMeta: p.objectMeta(w.Release, p.workerLabels(w)),
			Type: corev1.SecretTypeOpaque, Data: p.Secrets[w.Release], Immutable: new(true),
		})
	}
	return all
}

// retainedSecrets are the secrets of scripts that the work had before, as long as the cluster does not
// serve the revision, and as far as there is room: an old pod reads them when it restarts.
func (p Placement) retainedSecrets(revision string, secrets []runtime.Object, room int) []workv1.Manifest {
	if p.Before == nil || Status(p.Before, revision).Ready {
		return nil
	}
	known := map[string]bool{}
	for _, obj := range secrets {
		if s, ok := obj.(*corev1.Secret); ok {
			known[s.Name] = true
		}
	}
	var kept []workv1.Manifest
	for _, m := range p.Before.Spec.Workload.Manifests {
		name, ok := p.parseScriptSecret(m)
		if !ok || known[name] || len(m.Raw) > room {
			continue
		}
		known[name] = true
		room -= len(m.Raw)
		kept = append(kept, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: append([]byte(nil), m.Raw...)}})
	}
	return kept
}

// parseScriptSecret returns the name of the Secret of a script that a manifest is, if it is one.
func (p Placement) parseScriptSecret(m workv1.Manifest) (string, bool) {
	var obj unstructured.Unstructured
	if err := json.Unmarshal(m.Raw, &obj.Object); err != nil {
		return "", false
	}
	labels := obj.GetLabels()
	ours := obj.GetAPIVersion() == "v1" && obj.GetKind() == "Secret" && obj.GetNamespace() == Name(p.Account) &&
		labels[api.LabelScript] != "" && labels[api.LabelBundle] == p.Bundle.Name
	return obj.GetName(), ours
}
