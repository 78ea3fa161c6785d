// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package mcm

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	actionv1beta1 "github.com/spokelet/spokelet/api/action/v1beta1"
	mcmv1alpha1 "github.com/spokelet/spokelet/api/mcm/v1alpha1"
	viewv1beta1 "github.com/spokelet/spokelet/api/view/v1beta1"
	"github.com/spokelet/spokelet/hub/cached"
)

const (
	// maxCachedTemplate is how large a template, or the values of a release, may be to be kept
	// in the cache, in bytes of canonical JSON.
	maxCachedTemplate = 4 << 10
	// maxUncheckedTemplate is what no encoding makes larger than that.
	maxUncheckedTemplate = maxCachedTemplate / 8
	// placeholderKey is in what stands for a template that is not kept, and in nothing else.
	placeholderKey = "spokelet.io/cached-digest"
	// maxTemplateReads is how many templates that are not kept are read at a time, and patience how
	// long one may take.
	maxTemplateReads = 4
	templateTimeout  = 10 * time.Second
	// maxIdentityBytes is how much is kept of a name in a template. None that is longer is valid.
	maxIdentityBytes = 1 << 10
)

// templatePlaceholder replaces a template: its digest, and the identity of its object.
type templatePlaceholder struct {
	APIVersion string         `json:"apiVersion,omitempty"`
	Kind       string         `json:"kind,omitempty"`
	Metadata   objectIdentity `json:"metadata"`
	Digest     string         `json:"spokelet.io/cached-digest"`
}

type objectIdentity struct {
	Name      string `json:"name,omitempty"`
	Namespace string `json:"namespace,omitempty"`
}

// StripTemplates takes from the spec of a Work the templates that are too large to be kept.
// What stands for them is the same for the same template, whoever wrote it how.
func StripTemplates(kube *mcmv1alpha1.KubeWorkSpec, helm *mcmv1alpha1.HelmWorkSpec) {
	if kube != nil {
		kube.ObjectTemplate.Raw = stripTemplate(kube.ObjectTemplate.Raw)
	}
	if helm != nil {
		helm.Values = stripValues(helm.Values)
	}
}

// TemplateSize is how many bytes the templates of a spec have that were taken from it.
func TemplateSize(kube *mcmv1alpha1.KubeWorkSpec, helm *mcmv1alpha1.HelmWorkSpec) int {
	size := 0
	if kube != nil {
		size += strippedSize(kube.ObjectTemplate.Raw)
	}
	if helm != nil {
		size += strippedSize(helm.Values)
	}
	return size
}

func stripTemplate(raw []byte) []byte {
	lies := bytes.Contains(raw, []byte(placeholderKey))
	if len(raw) <= maxUncheckedTemplate && !lies {
		return raw
	}
	digest, err := Digest(raw)
	if err != nil {
		digest = invalidDigest
	}
	if err == nil && digestSize(digest) <= maxCachedTemplate && !lies {
		return raw
	}
	short := templatePlaceholder{Digest: digest}
	_ = json.Unmarshal(raw, &short) // as far as it is an object
	short.Digest = digest
	for _, name := range []*string{&short.APIVersion, &short.Kind, &short.Metadata.Name, &short.Metadata.Namespace} {
		*name = strings.Clone((*name)[:min(len(*name), maxIdentityBytes+1)])
	}
	out, err := json.Marshal(short)
	if err != nil {
		return nil // strings have one
	}
	return out
}

func stripValues(values []byte) []byte {
	if len(values) <= maxCachedTemplate && !bytes.Contains(values, []byte(placeholderKey)) {
		return values
	}
	sum := sha256.Sum256(values)
	return fmt.Appendf(nil, "%s %s-%d", placeholderKey, hex.EncodeToString(sum[:]), len(values))
}

// isPlaceholder reports whether a template was replaced by a placeholder.
func isPlaceholder(template []byte) bool { return bytes.Contains(template, []byte(placeholderKey)) }

func strippedSize(template []byte) int {
	if !isPlaceholder(template) {
		return 0
	}
	if _, values, ok := bytes.Cut(template, []byte(placeholderKey+" ")); ok {
		return digestSize(string(values))
	}
	var short templatePlaceholder
	_ = json.Unmarshal(template, &short) // is ours
	return digestSize(short.Digest)
}

// SizeOf is how many bytes of an object in the cache are with the API server alone, its
// result aside.
func SizeOf(obj client.Object) int {
	size := cached.Dropped(obj)
	switch o := obj.(type) {
	case *mcmv1alpha1.Work:
		size += TemplateSize(o.Spec.KubeWork, o.Spec.HelmWork)
	case *mcmv1alpha1.WorkSet:
		size += TemplateSize(o.Spec.Template.Spec.KubeWork, o.Spec.Template.Spec.HelmWork)
	case *actionv1beta1.ManagedClusterAction:
		if o.Spec.KubeWork != nil {
			size += strippedSize(o.Spec.KubeWork.ObjectTemplate.Raw)
		}
	}
	return size
}

// hasPlaceholder reports whether a template has to be read before an action is sent.
func (in *request) hasPlaceholder() bool {
	return in.action != nil && (isPlaceholder(in.action.Template) || in.action.Release != nil && isPlaceholder(in.action.Release.Values))
}

// readUncached parses a request from the API server, of an object whose template is not in the
// cache. What is read is held until release is called.
func (c *Controller) readUncached(ctx context.Context, d *dialect, obj client.Object, in *request) (release func(), err error) {
	select {
	case c.templateSlots <- struct{}{}:
		release = func() { <-c.templateSlots }
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	whole := d.newObject()
	if err := cached.Read(ctx, c.cfg.Live, obj, whole); err != nil {
		release()
		return nil, fmt.Errorf("get template of %s: %w", obj.GetName(), err)
	}
	*in = d.parse(whole, c.options)
	return release, nil
}

// oversizedType is the type of a Work whose spec is not kept: the webhook was not asked about it.
var oversizedType = mcmv1alpha1.WorkType(fmt.Sprintf("of a spec of more than %d bytes beside its template", cached.MaxSpec))

// stripSpec takes from an object templates, and all else that is too large to be kept.
func stripSpec(obj client.Object) {
	switch o := obj.(type) {
	case *mcmv1alpha1.Work:
		StripTemplates(o.Spec.KubeWork, o.Spec.HelmWork)
		if cached.Size(&o.Spec) > cached.MaxKept {
			o.Spec = mcmv1alpha1.WorkSpec{Cluster: o.Spec.Cluster, Type: oversizedType}
		}
	case *viewv1beta1.ManagedClusterView:
		if cached.Size(&o.Spec) > cached.MaxKept {
			o.Spec = viewv1beta1.ViewSpec{}
		}
	case *actionv1beta1.ManagedClusterAction:
		if o.Spec.KubeWork != nil {
			o.Spec.KubeWork.ObjectTemplate.Raw = stripTemplate(o.Spec.KubeWork.ObjectTemplate.Raw)
		}
		if cached.Size(&o.Spec) > cached.MaxKept {
			o.Spec = actionv1beta1.ActionSpec{}
		}
	}
}
