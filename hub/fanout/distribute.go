// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package fanout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/hub/requester"
	"github.com/spokelet/spokelet/internal/managedcluster"
)

// Why a cluster has no Work, or not the one that it is to have, until something changes.
var (
	// errSelector: the selector is none.
	errSelector = errors.New("spec.clusterSelector")
	// errForeign: somebody else's Work has the name.
	errForeign = errors.New("is in the way: it is not one of this object")
)

// resourceWorks is what an author has to be allowed to create.
var resourceWorks = metav1.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "works"}

// indexOwner finds Works in the cache by what owns them.
const indexOwner = v1alpha1.AnnotationOwners

func indexOf(w client.Object) []string {
	if owner := w.GetAnnotations()[v1alpha1.AnnotationOwners]; owner != "" {
		return []string{owner}
	}
	return nil
}

// works are those of a parent in the cache, by cluster. They are not to be changed.
func (k *reconciler) works(ctx context.Context, p parent) (map[string]*v1alpha1.Work, error) {
	var list v1alpha1.WorkList
	if err := k.cfg.Client.List(ctx, &list, client.MatchingFields{indexOwner: ownerReference(p)}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list works: %w", err)
	}
	works := map[string]*v1alpha1.Work{}
	for i := range list.Items {
		// The annotation of a Work that somebody else has made says nothing.
		if w := &list.Items[i]; w.Name == workName(p, w.Namespace) {
			works[w.Namespace] = w
		}
	}
	return works, nil
}

// clusters are the names of those that are served, and of those among them that a parent
// selects, in their order.
func (k *reconciler) clusters(ctx context.Context, p parent) (served, selected []string, err error) {
	selector, err := metav1.LabelSelectorAsSelector(p.selector)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errSelector, err)
	}
	var list clusterv1.ManagedClusterList
	if err := k.cfg.Client.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("list clusters: %w", err)
	}
	for i := range list.Items {
		c := &list.Items[i]
		if !managedcluster.IsSelectable(c) {
			continue
		}
		served = append(served, c.Name)
		if selector.Matches(labels.Set(c.Labels)) {
			selected = append(selected, c.Name)
		}
	}
	slices.Sort(served)
	slices.Sort(selected)
	return served, selected, nil
}

// distribution is what came of bringing Works to clusters.
type distribution struct {
	// outcomes are of selected clusters that the author may know of, works their Works.
	outcomes []clusterOutcome
	works    map[string]*v1alpha1.Work
	// forbidden is how many of all clusters the author may not know of, and unnamed says
	// so; none: that is all there are.
	forbidden int32
	unnamed   string
	none      bool
	// blocking are the Works of others that have the names of its own.
	blocking []types.NamespacedName
	// lost: the author has no more a right of which it was remembered that it is there.
	lost bool
	// failure is one that goes away when it is tried again.
	failure error
}

// distribute makes, changes and removes Works. The error is one of all of them together.
func (k *reconciler) distribute(ctx context.Context, p parent, works map[string]*v1alpha1.Work) (distribution, error) {
	served, selected, err := k.clusters(ctx, p)
	if err != nil {
		return distribution{}, err
	}
	registration := k.cfg.Authors.UID()
	by, unknown := requester.FromObject(p.object, requester.MCM, registration)
	if unknown != nil {
		return distribution{failure: k.abandon(ctx, works, selected, registration)}, unknown
	}
	may, err := k.clustersOf(p, by).check(ctx, by, k.cfg.Access, served)
	if err != nil {
		return distribution{}, err
	}
	failure := k.deleteWorks(ctx, beside(works, selected))
	outcomes, failures := make([]clusterOutcome, len(selected)), make([]error, len(selected))
	var group errgroup.Group
	group.SetLimit(writers)
	complete := func(*v1alpha1.Work) error { return nil }
	if p.isStripped() {
		group.SetLimit(largeWriters)
		whole := sync.OnceValues(func() (parent, error) { return k.getWithTemplate(ctx, p) })
		complete = func(w *v1alpha1.Work) error {
			p, err := whole()
			w.Spec = p.specFor(w.Spec.Cluster.Name)
			return err
		}
	}
	for i, cluster := range selected {
		right := by.PermissionToCreate(resourceWorks, cluster)
		ask := func() error {
			switch {
			case !may.allowed[cluster]:
				return right.Forbidden()
			case may.fresh[cluster]:
				return nil
			}
			return right.Review(ctx, k.cfg.Access)
		}
		group.Go(func() error {
			outcomes[i], failures[i] = k.syncWork(ctx, newWork(p, by, registration, cluster), works[cluster], ask, complete)
			return nil
		})
	}
	_ = group.Wait()
	d := distribution{failure: failure, works: map[string]*v1alpha1.Work{}}
	for i, cluster := range selected {
		d.add(p, cluster, outcomes[i], failures[i], may.allowed)
		if w := works[cluster]; w != nil && may.allowed[cluster] {
			d.works[cluster] = w
		}
	}
	if d.lost {
		k.dropClusters(by)
	}
	for _, cluster := range served {
		if !may.allowed[cluster] {
			d.forbidden++
		}
	}
	d.unnamed, d.none = forbiddenMessage(by, d.forbidden), int(d.forbidden) == len(served) && len(served) > 0
	return d, nil
}

// beside are the Works of clusters that are not selected.
func beside(works map[string]*v1alpha1.Work, selected []string) map[string]*v1alpha1.Work {
	leaving := maps.Clone(works)
	maps.DeleteFunc(leaving, func(cluster string, _ *v1alpha1.Work) bool {
		_, found := slices.BinarySearch(selected, cluster)
		return found
	})
	return leaving
}

// abandon removes the Works of a parent that is nobody's. One that is nobody's, too, asks
// nothing, and stays: made anew it would do again what it did before the webhook was
// registered anew.
func (k *reconciler) abandon(ctx context.Context, works map[string]*v1alpha1.Work, selected []string, registration string) error {
	leaving := beside(works, selected)
	for cluster, w := range works {
		if _, err := requester.FromObject(w, requester.MCM, registration); err == nil {
			leaving[cluster] = w
		}
	}
	return k.deleteWorks(ctx, leaving)
}

func isForbidden(err error) bool { return errors.Is(err, requester.ErrForbidden) }

// add adds the outcome of a cluster, unless the author may not know of it.
func (d *distribution) add(p parent, cluster string, o clusterOutcome, err error, allowed map[string]bool) {
	switch {
	case !allowed[cluster]:
		return
	case isForbidden(err):
		allowed[cluster], d.lost = false, true
		return
	case err != nil:
		o = d.newFailure(p, cluster, err)
	}
	d.outcomes = append(d.outcomes, o)
}

// newFailure returns the outcome of a cluster whose Work could not be written.
func (d *distribution) newFailure(p parent, cluster string, err error) clusterOutcome {
	o := clusterOutcome{ClusterResult: v1alpha1.ClusterResult{Name: cluster, Type: v1alpha1.WorkFailed, Reason: err.Error()}, isHubs: true}
	switch {
	case errors.Is(err, errForeign):
		d.blocking = append(d.blocking, types.NamespacedName{Namespace: cluster, Name: workName(p, cluster)})
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err): // and would be again
	default:
		o.Type, o.pending = v1alpha1.WorkProcessing, true
		if d.failure == nil {
			d.failure = fmt.Errorf("cluster %q: %w", cluster, err)
		}
	}
	return o
}

// syncWork brings the Work of one cluster to what it is to be, and returns how it is. Before
// it looks for a place for one, or changes one, it asks whether that is allowed, and
// completes what is to be written.
func (k *reconciler) syncWork(ctx context.Context, want, has *v1alpha1.Work, ask func() error, complete func(*v1alpha1.Work) error) (clusterOutcome, error) {
	var err error
	switch {
	case has == nil:
	case has.Annotations[v1alpha1.AnnotationOwnerUID] != want.Annotations[v1alpha1.AnnotationOwnerUID]:
		err, has = k.deleteWork(ctx, has), nil
	default:
		if patch, failed := diffPatch(has, want); patch == nil && failed == nil {
			return newOutcome(has), nil
		}
	}
	if err == nil {
		err = ask()
	}
	switch {
	case isForbidden(err) && has != nil:
		// What is there is what somebody else was allowed.
		if failed := k.deleteWork(ctx, has); failed != nil {
			err = failed
		}
	case err != nil:
	case has == nil:
		if err = k.checkNotForeign(ctx, want); err == nil {
			err = k.createWork(ctx, want, complete)
		}
	default:
		err = k.patchWork(ctx, has, want, complete)
	}
	// Of what has changed there is no answer yet.
	return clusterOutcome{ClusterResult: v1alpha1.ClusterResult{Name: want.Namespace}, pending: true, isHubs: true}, err
}

// patchWork makes a Work what it is to be.
func (k *reconciler) patchWork(ctx context.Context, has, want *v1alpha1.Work, complete func(*v1alpha1.Work) error) error {
	if err := complete(want); err != nil {
		return err
	}
	patch, err := diffPatch(has, want)
	if err != nil {
		return err
	}
	return k.cfg.Client.Patch(ctx, partialWork(want), client.RawPatch(types.JSONPatchType, patch), fieldOwner)
}

// checkNotForeign looks in the cache for somebody else's Work of a name.
func (k *reconciler) checkNotForeign(ctx context.Context, want *v1alpha1.Work) error {
	var has v1alpha1.Work
	err := k.cfg.Client.Get(ctx, client.ObjectKeyFromObject(want), &has)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get work %q: %w", want.Name, err)
	}
	return checkOwner(&has, want)
}

// checkOwner returns an error for a Work of another owner.
func checkOwner(has metav1.Object, want *v1alpha1.Work) error {
	if has.GetAnnotations()[v1alpha1.AnnotationOwners] == want.Annotations[v1alpha1.AnnotationOwners] {
		return nil // the cache comes to know it, and it is brought into line then
	}
	return fmt.Errorf("work %q %w", want.Name, errForeign)
}

func (k *reconciler) createWork(ctx context.Context, want *v1alpha1.Work, complete func(*v1alpha1.Work) error) error {
	if err := complete(want); err != nil {
		return err
	}
	err := k.cfg.Client.Create(ctx, want, fieldOwner)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	has := partialWork(want)
	if err := k.cfg.Live.Get(ctx, client.ObjectKeyFromObject(want), has); err != nil {
		return fmt.Errorf("get work %q: %w", want.Name, err)
	}
	return checkOwner(has, want)
}

func partialWork(w *v1alpha1.Work) *metav1.PartialObjectMetadata {
	p := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	p.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Work"))
	return p
}

// deleteWorks deletes Works. One that stays keeps no other.
func (k *reconciler) deleteWorks(ctx context.Context, works map[string]*v1alpha1.Work) error {
	var group errgroup.Group
	group.SetLimit(writers)
	for _, w := range works {
		group.Go(func() error { return k.deleteWork(ctx, w) })
	}
	return group.Wait()
}

// deleteWork deletes a Work, the very one that was seen.
func (k *reconciler) deleteWork(ctx context.Context, w *v1alpha1.Work) error {
	err := k.cfg.Client.Delete(ctx, partialWork(w), client.Preconditions{UID: &w.UID})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete work %q of cluster %q: %w", w.Name, w.Namespace, err)
	}
	return nil
}
