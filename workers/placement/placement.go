// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/workers/api"
	bundlev1alpha1 "github.com/spokelet/spokelet/workers/api/bundle/v1alpha1"
	"github.com/spokelet/spokelet/workers/script"
)

// revisionDigits is how much of a digest tells revisions of one bundle apart.
const revisionDigits = 16

// Placement is a bundle in one cluster.
type Placement struct {
	Account string
	// HubNamespace is that of the account, on the hub.
	HubNamespace string
	Cluster      string
	// Host that is the account's. Empty: there are no routes.
	Host   string
	Bundle *bundlev1alpha1.WorkerBundle
	// Secrets are those of the releases, by the name of the release. Each release of a
	// worker that has a secretRef is among them.
	Secrets map[string]map[string][]byte
	// PullSecret is the .dockerconfigjson that the cluster reads the image with. Empty: the
	// registry lets everybody read.
	PullSecret []byte
	Options    Options
	// Before is the work as it is on the hub, if there is one. While the cluster does not
	// serve the revision of this placement yet, its pods need secrets of the work before.
	Before *workv1.ManifestWork
}

// SizeError is returned for a work that is too large for the hub.
type SizeError struct {
	Account string
	// Bytes of the manifests, and of the Secrets among them.
	Bytes, Secrets int
	Limit          int
}

// Error returns the message.
func (e *SizeError) Error() string {
	return fmt.Sprintf("the work of account %s has %d bytes, %d of them of Secrets: at most %d are possible", e.Account, e.Bytes, e.Secrets, e.Limit)
}

// Name is that of the work of an account, and of its namespace in the clusters.
func Name(account string) string { return "workers-" + account }

// Work returns the work of a placement, nil if there is nothing to run. The placement is not
// changed and not kept. A [*SizeError] is one of the errors.
func Work(p Placement) (*workv1.ManifestWork, error) {
	if !p.hasWorkers() {
		return nil, nil
	}
	p = p.normalized()
	if err := p.validate(); err != nil {
		return nil, fmt.Errorf("work of bundle %s: %w", p.Bundle.Name, err)
	}
	revision, err := p.revision()
	if err != nil {
		return nil, fmt.Errorf("work of bundle %s: %w", p.Bundle.Name, err)
	}
	manifests, err := p.manifests(revision)
	if err != nil {
		return nil, fmt.Errorf("work of bundle %s: %w", p.Bundle.Name, err)
	}
	return &workv1.ManifestWork{
		TypeMeta: metav1.TypeMeta{APIVersion: workv1.GroupVersion.String(), Kind: "ManifestWork"},
		ObjectMeta: metav1.ObjectMeta{
			Name: Name(p.Account), Namespace: p.Cluster,
			Labels: map[string]string{
				api.LabelAccount: p.Account, api.LabelBundle: p.Bundle.Name, api.LabelNamespace: p.HubNamespace,
			},
			Annotations: map[string]string{api.AnnotationBundle: string(p.Bundle.UID)},
		},
		Spec: workv1.ManifestWorkSpec{
			Workload:        workv1.ManifestsTemplate{Manifests: manifests},
			DeleteOption:    &workv1.DeleteOption{PropagationPolicy: workv1.DeletePropagationPolicyTypeForeground},
			ManifestConfigs: p.manifestConfigs(),
		},
	}, nil
}

// Revision names what a placement asks for. It changes with everything that is applied but
// the values of secrets, which have another release then, and with the bundle, so that what
// is asked for again is told from what was asked for before. Empty: nothing is, as there is
// no work.
func Revision(p Placement) string {
	if !p.hasWorkers() {
		return ""
	}
	revision, err := p.normalized().revision()
	if err != nil {
		return ""
	}
	return revision
}

func (p Placement) revision() (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%q %d\n", p.Bundle.UID, p.Bundle.Generation)
	for _, obj := range p.publicObjects("") {
		raw, err := encode(obj)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s\n", raw)
	}
	return hex.EncodeToString(h.Sum(nil))[:revisionDigits], nil
}

// hasWorkers reports whether there is something to run.
func (p Placement) hasWorkers() bool {
	return p.Bundle != nil && p.Bundle.Spec.PodTemplate.Image != "" && len(p.Bundle.Spec.Workers) > 0
}

// normalized returns a placement with its defaults and in one order.
func (p Placement) normalized() Placement {
	p.Options.Default()
	p.Bundle = p.Bundle.DeepCopy()
	for i := range p.Bundle.Spec.Workers {
		w := &p.Bundle.Spec.Workers[i]
		w.EnvPrefix = cmp.Or(w.EnvPrefix, script.EnvPrefix(w.WorkerName))
	}
	slices.SortFunc(p.Bundle.Spec.Workers, func(a, b bundlev1alpha1.Worker) int {
		return cmp.Or(cmp.Compare(a.WorkerNumber, b.WorkerNumber), cmp.Compare(a.WorkerName, b.WorkerName))
	})
	return p
}

// publicObjects returns the objects that are no Secrets.
func (p Placement) publicObjects(revision string) []runtime.Object {
	all := []runtime.Object{p.namespace(), p.networkPolicy(), p.deployment(revision)}
	all = append(all, p.services()...)
	all = append(all, p.routes()...)
	all = append(all, p.autoscaler(), p.disruptionBudget())
	return append(all, p.tailAccess()...)
}

// objectMeta is the name of an object in the namespace of the account.
func (p Placement) objectMeta(name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: Name(p.Account), Labels: labels}
}

// deploymentName is that of the Deployment and of all that there is once.
func (p Placement) deploymentName() string { return p.Bundle.Spec.DeploymentName }

// labels are on all that belongs to the bundle; pods are selected by them.
func (p Placement) labels() map[string]string {
	return map[string]string{api.LabelAccount: p.Account, api.LabelBundle: p.Bundle.Name}
}

// workerLabels are on what belongs to one worker.
func (p Placement) workerLabels(w bundlev1alpha1.Worker) map[string]string {
	labels := p.labels()
	labels[api.LabelScript] = w.WorkerName
	return labels
}
