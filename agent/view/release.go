// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/spokelet/spokelet/agent/helm/message"
	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

const (
	// recordOwner selects the Secrets in which Helm keeps its releases, a revision each
	// (helm.sh/helm/v4/pkg/storage/driver). Their names are "<prefix><release>.v<revision>".
	recordOwner  = "owner=helm"
	recordPrefix = "sh.helm.release.v1."
	// labelName and labelStatus are of the release and of its revision.
	labelName   = "name"
	labelStatus = "status"
	// recordPage bounds the records of a page when the API server cannot stream a list: each
	// may have 1 MiB.
	recordPage = 8
	// revisionSize is counted for a revision that is not shown, in bytes.
	revisionSize = 32
	// maxDescription bounds the description of a revision, maxName its names and its status,
	// in bytes.
	maxDescription = 4 << 10
	maxName        = 256
	// maxFraming is more than what precedes and follows the items of a list.
	maxFraming = 1 << 10
)

// secretsViewOf returns the view of Secrets that answers a view of releases.
func secretsViewOf(spec wire.View) wire.View {
	selector := recordOwner
	if spec.Target.Name != "" {
		selector += "," + labelName + "=" + spec.Target.Name
	}
	if spec.LabelSelector != "" {
		selector += "," + spec.LabelSelector
	}
	spec.LabelSelector = selector
	spec.Target = wire.Target{Resource: "secrets", Version: "v1", Namespace: spec.Target.Namespace}
	return spec
}

// revision names one revision of a release.
type revision struct {
	namespace, release string
	number             int32
}

// revisionOf returns the revision that a Secret records, false if it is no record. It parses
// the name, which unlike labels cannot be changed.
func revisionOf(obj metav1.Object) (revision, bool) {
	name, ok := strings.CutPrefix(obj.GetName(), recordPrefix)
	at := strings.LastIndex(name, ".v")
	if !ok || at < 1 {
		return revision{}, false
	}
	number, err := strconv.ParseInt(name[at+len(".v"):], 10, 32)
	if err != nil || number < 1 || name[at+len(".v"):] != strconv.FormatInt(number, 10) {
		return revision{}, false
	}
	return revision{namespace: obj.GetNamespace(), release: name[:at], number: int32(number)}, true
}

// key returns the key of the release's item.
func (r revision) key() string { return r.namespace + "/" + r.release }

// revisions are those of all releases of a view. The latest of each release is an item of
// the list; of earlier ones only the numbers are kept, because a record may be
// as large as a Secret, and Helm keeps ten.
type revisions struct {
	memory    *memoryBudget
	numbers   map[string][]int32 // by release, ascending
	accounted int64              // of memory.held
}

// add adds a revision, and reports whether it is the latest. The error refuses the view.
func (r *revisions) add(rev revision) (latest bool, err error) {
	of, known := r.numbers[rev.key()]
	at, has := slices.BinarySearch(of, rev.number)
	if has {
		return at == len(of)-1, nil
	}
	r.numbers[rev.key()] = slices.Insert(of, at, rev.number)
	size := int64(revisionSize)
	if !known {
		size += int64(len(rev.key()))
	}
	r.account(size)
	if r.memory.used.Load() > r.memory.limit {
		return false, fmt.Errorf("%w: limit is %d bytes", errLimit, r.memory.limit)
	}
	return at == len(of), nil
}

// remove removes a revision. It reports whether none is left (gone), or whether the latest of
// those that are left is not shown (unknown).
func (r *revisions) remove(rev revision) (gone, unknown bool) {
	of := r.numbers[rev.key()]
	at, has := slices.BinarySearch(of, rev.number)
	if !has {
		return false, false
	}
	r.account(-revisionSize)
	if len(of) == 1 {
		r.account(-int64(len(rev.key())))
		delete(r.numbers, rev.key())
		return true, false
	}
	r.numbers[rev.key()] = slices.Delete(of, at, at+1)
	return false, at == len(of)-1
}

func (r *revisions) account(size int64) {
	r.accounted += size
	r.memory.used.Add(size)
}

// release releases the memory of the revisions.
func (r *revisions) release() {
	if r.accounted != 0 {
		r.account(-r.accounted)
	}
	r.numbers = nil
}

// newReleaseItem returns the item of a release whose record was added or removed; none if another
// revision is shown.
func (s *viewSink) newReleaseItem(obj metav1.Object, deleted bool) (item, error) {
	rev, ok := revisionOf(obj)
	if !ok {
		return item{}, nil
	}
	if deleted {
		gone, unknown := s.revisions.remove(rev)
		if unknown {
			s.reload()
		}
		if gone {
			return item{key: rev.key(), deleted: true}, nil
		}
		return item{}, nil
	}
	latest, err := s.revisions.add(rev)
	if err != nil || !latest {
		return item{}, err
	}
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return item{}, fmt.Errorf("%w: an event with a %T", errUnexpectedObject, obj)
	}
	raw, err := s.encodeRelease(u, rev)
	return item{key: rev.key(), raw: raw}, err
}

// encodeRelease encodes a release, without a manifest that exceeds the limit of the view:
// otherwise the release would be omitted.
func (s *viewSink) encodeRelease(u *unstructured.Unstructured, rev revision) ([]byte, error) {
	most := 0
	if s.view.spec.Secrets == wire.SecretsShown {
		most = s.view.spec.MaxBytes
	}
	s.view.engine.decoding.Lock()
	r, err := decodeRecord(u, most)
	s.view.engine.decoding.Unlock()
	if err != nil {
		r = helmRecord{}
		r.Info.Status, r.Info.Description = u.GetLabels()[labelStatus], err.Error()
	}
	shown := newHelmRelease(r, rev)
	raw, err := json.Marshal(shown)
	if err == nil && len(raw) > s.view.spec.MaxBytes-maxFraming && r.Manifest.text != "" {
		shown.Spec.Manifest = message.Omitted
		raw, err = json.Marshal(shown)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnexpectedObject, err)
	}
	return raw, nil
}

// newHelmRelease converts a record.
func newHelmRelease(r helmRecord, rev revision) v1alpha1.HelmRelease {
	return v1alpha1.HelmRelease{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.HelmReleaseKind},
		Metadata: v1alpha1.HelmReleaseMetadata{Name: rev.release, Namespace: rev.namespace},
		Spec: v1alpha1.HelmReleaseSpec{
			ReleaseName: rev.release, Namespace: rev.namespace, Version: rev.number,
			Status: truncate(r.Info.Status, maxName), Description: truncate(r.Info.Description, maxDescription),
			FirstDeployed: r.Info.FirstDeployed.Time, LastDeployed: r.Info.LastDeployed.Time,
			ChartName: truncate(r.Chart.Metadata.Name, maxName), ChartVersion: truncate(r.Chart.Metadata.Version, maxName), Manifest: r.Manifest.display(),
		},
	}
}

// truncate shortens a text that anybody may have written.
func truncate(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("...")], "") + "..."
}
