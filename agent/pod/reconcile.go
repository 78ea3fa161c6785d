// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/spokelet/spokelet/agent/pod/translate"
)

// errPodGone: the pod that was to be written is there no more.
var errPodGone = errors.New("pod is not in the spoke any more")

var errUpdatePending = errors.New("pod in the spoke is not yet as the hub wants it")

// reconcile does the one thing that is to be done about a pod.
func (e *Engine) reconcile(ctx context.Context, at namespacedName) error {
	e.mu.Lock()
	en, ok := e.pods[at]
	if !ok {
		e.mu.Unlock()
		return nil
	}
	what, want, now, blind := decide(e.decisionInput(en)), en.desired, en.live, e.listError
	if what == actForget {
		e.deleteState(en)
	}
	if en.startAction(what) {
		// The pauses after failures of something else, and their number, are not of this.
		e.queue.Forget(queueItem{pod: at})
	}
	if want != nil && want.partialRefusal != nil {
		e.warnOnce(en, want, want.partialRefusal)
	}
	e.reportLeftOutAnnotations(en)
	e.mu.Unlock()

	switch what {
	case actCreate:
		return e.create(ctx, en, want)
	case actUpdate:
		return e.update(ctx, en, want, now)
	case actDelete:
		return e.delete(ctx, at, now, &want.grace)
	case actDeleteUnknown, actDeleteForced:
		if _, here := e.hubNamespace(at.Namespace); !here {
			if err := e.deleteCopiesOf(ctx, now.pod); err != nil && e.hasRetriesLeft(at) {
				return err
			}
		}
		return e.delete(ctx, at, now, removalGrace(what))
	case actReportGone, actReportLost:
		// Who comes after us hears of the pod, and so of its copies, as long as the hub
		// has it. It does not wait for ever.
		if err := e.releaseObjects(ctx, en, want); err != nil && e.hasRetriesLeft(at) {
			return err
		}
		e.setAbsent(en, want, e.goneStatus(en, want, what == actReportLost))
	case actReleaseObjects:
		return e.releaseObjects(ctx, en, want)
	case actReportRefused:
		return e.setRefused(en, want, want.refusal)
	case actNone:
		// Of a pod that was here it is not known that it is not.
		if want != nil && !want.wasInCluster && now == nil && blind != nil {
			_ = e.setRefused(en, want, fmt.Errorf("list of pods in the spoke: %w", blind)) // the watch tries again
		}
	case actForget:
	}
	return nil
}

// create makes a pod, after what it needs.
func (e *Engine) create(ctx context.Context, en *podState, w *desiredPod) error {
	pod, err := e.prepareAndCreate(ctx, en.name, w)
	switch {
	case err == nil:
		e.metrics.create.Observe(time.Since(w.received).Seconds())
		e.observePod(pod)
		return nil
	case isCanceled(ctx):
		return err
	case errors.Is(err, errObjectUnknown):
		return nil // it has just changed its mind, and will say
	case apierrors.IsAlreadyExists(err):
		return e.adoptExisting(ctx, en, w)
	case apierrors.IsNotFound(err):
		e.namespaces.invalidate(en.name.Namespace)
	}
	return e.setRefused(en, w, err)
}

func (e *Engine) prepareAndCreate(ctx context.Context, at namespacedName, w *desiredPod) (*corev1.Pod, error) {
	pod := w.pod.DeepCopy()
	pod.Spec.EphemeralContainers = nil // which come to a live pod only
	// Before anything is written for it.
	if err := e.assignToGroup(at, pod, w); err != nil {
		return nil, err
	}
	if err := e.collector.refuseWhileCollecting(at.Namespace); err != nil {
		return nil, err
	}
	ours, err := e.namespaces.ensure(ctx, at.Namespace, e.originOf(at.Namespace, w.namespaceUID))
	if err != nil {
		return nil, err
	}
	account := namespacedName{Namespace: at.Namespace, Name: pod.Spec.ServiceAccountName}
	if err := e.accounts.ensure(ctx, account, ours); err != nil {
		return nil, err
	}
	if err := e.spoke.checkClaims(ctx, at, &pod.Spec); err != nil {
		return nil, err
	}
	// All are looked at before one is written: without a pod nobody would know of it.
	for _, key := range w.refs {
		if err := e.checkNameFree(ctx, key); err != nil {
			return nil, err
		}
	}
	for _, key := range w.refs {
		if err := e.syncCopy(ctx, key); err != nil {
			return nil, err
		}
	}
	// Somebody may have put his own in their place meanwhile. A pod names them, and no
	// write says which ones were meant.
	if err := e.accounts.check(ctx, account); err != nil {
		return nil, err
	}
	if err := e.spoke.checkClaims(ctx, at, &pod.Spec); err != nil {
		return nil, err
	}
	return e.spoke.core.Pods(at.Namespace).Create(ctx, pod, metav1.CreateOptions{})
}

// adoptExisting looks at the pod that has the name. Ours is what we did not know of, for
// the answer to its creation was lost.
func (e *Engine) adoptExisting(ctx context.Context, en *podState, w *desiredPod) error {
	pod, err := e.spoke.core.Pods(en.name.Namespace).Get(ctx, en.name.Name, metav1.GetOptions{})
	if err != nil {
		return e.setRefused(en, w, readError(err))
	}
	if pod.Labels[translate.LabelHub] != e.cfg.HubID || pod.Labels[translate.LabelHubPodUID] == "" {
		return e.setRefused(en, w, nameTaken("pod", en.name.Name, en.name.Namespace))
	}
	e.mu.Lock()
	if en.deletedUID == pod.UID {
		en.deletedUID = "" // it has come back into sight
	}
	e.mu.Unlock()
	e.observePod(pod)
	return nil
}

// subEphemeral is the subresource that adds containers to a live pod.
const subEphemeral = "ephemeralcontainers"

// writes are the kinds of changes, in the order in which they are written. A refusal
// of one keeps none of the others.
var writes = []struct {
	sub  []string
	part func(translate.Changes) []byte
}{
	{[]string{subEphemeral}, func(c translate.Changes) []byte { return c.Ephemeral }},
	{[]string{"resize"}, func(c translate.Changes) []byte { return c.Resize }},
	{nil, func(c translate.Changes) []byte { return c.Update }},
}

// update brings a pod of the spoke to what the hub wants now.
func (e *Engine) update(ctx context.Context, en *podState, w *desiredPod, now *livePod) error {
	var errs []error
	for _, write := range writes {
		body := write.part(translate.ComputeChanges(w.pod, now.pod))
		if body == nil {
			continue
		}
		pod, err := e.patch(ctx, en, w, now.uid, body, write.sub...)
		if errors.Is(err, errPodGone) {
			e.observePodDeleted(en.name, now.uid, nil)
			return nil
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		e.observePod(pod)
		now = &livePod{liveState: newLiveState(pod), pod: pod}
	}
	if len(errs) == 0 && !translate.ComputeChanges(w.pod, now.pod).Empty() {
		return errUpdatePending
	}
	return errors.Join(errs...)
}

// patch writes one change to the pod with that UID. The error is errPodGone when
// there is no such pod.
func (e *Engine) patch(ctx context.Context, en *podState, w *desiredPod, uid types.UID, body []byte, sub ...string) (*corev1.Pod, error) {
	if slices.Contains(sub, subEphemeral) {
		if err := e.copyEphemeralObjects(ctx, en, w); err != nil {
			return nil, err // whoever tends the object says so
		}
	}
	pod, err := e.spoke.core.Pods(en.name.Namespace).Patch(ctx, en.name.Name, types.StrategicMergePatchType, body, metav1.PatchOptions{}, sub...)
	if apierrors.IsNotFound(err) {
		return nil, e.explainNotFound(ctx, en, w, uid, strings.Join(append([]string{"pods"}, sub...), "/"), err)
	}
	if err != nil {
		e.warnIfRefused(en, w, err)
	}
	return pod, err
}

// copyEphemeralObjects sees to it that what ephemeral containers refer to is the hub's, before they
// are there to read it.
func (e *Engine) copyEphemeralObjects(ctx context.Context, en *podState, w *desiredPod) error {
	only := &corev1.Pod{Spec: corev1.PodSpec{EphemeralContainers: w.pod.Spec.EphemeralContainers}}
	for _, key := range referencedCopies(only, en.key.Namespace) {
		if err := e.syncCopy(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// explainNotFound finds out what was not found: the pod, or the subresource, which an API
// server of another version or with other gates may not have.
func (e *Engine) explainNotFound(ctx context.Context, en *podState, w *desiredPod, uid types.UID, what string, notFound error) error {
	gone, err := e.isMissing(ctx, en.name, uid)
	switch {
	case err != nil:
		return err
	case gone:
		return errPodGone
	}
	err = fmt.Errorf("the cluster's API server does not serve %s: %w", what, notFound)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.warnOnce(en, w, err)
	return err
}

// isMissing asks whether a pod that was seen is there no more.
func (e *Engine) isMissing(ctx context.Context, at namespacedName, uid types.UID) (bool, error) {
	pod, err := e.spoke.core.Pods(at.Namespace).Get(ctx, at.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the pod: %w", err)
	}
	return pod.UID != uid, nil
}

// delete removes the pod of the spoke that was seen, and no other of its name.
func (e *Engine) delete(ctx context.Context, at namespacedName, now *livePod, grace *int64) error {
	err := e.spoke.core.Pods(at.Namespace).Delete(ctx, at.Name, metav1.DeleteOptions{
		GracePeriodSeconds: grace, Preconditions: &metav1.Preconditions{UID: &now.uid},
	})
	gone := apierrors.IsNotFound(err)
	if apierrors.IsConflict(err) {
		// Of another UID, or somebody's webhook says so.
		var ask error
		if gone, ask = e.isMissing(ctx, at, now.uid); ask != nil {
			return ask
		}
	}
	if gone {
		// Its end has passed us by.
		e.observePodDeleted(at, now.uid, nil)
		return nil
	}
	return err
}

// removalGrace is that of a pod that the hub has no more; nil is the pod's own.
func removalGrace(what action) *int64 {
	if what != actDeleteForced {
		return nil
	}
	return new(int64(leastGrace))
}

// maxCopyRetries is how often the removal of a pod's copies is tried before the hub
// hears that nothing is left: for half a minute.
const maxCopyRetries = 9

// hasRetriesLeft tells whether what is done about a pod has not failed that often.
func (e *Engine) hasRetriesLeft(at namespacedName) bool {
	return e.queue.NumRequeues(queueItem{pod: at}) < maxCopyRetries
}

// deleteCopiesOf removes the copies of a pod of a time with another prefix, which are nobody
// else's. The error is of what may yet be removed: what was refused stays, for the pod
// is not to run on because of it.
func (e *Engine) deleteCopiesOf(ctx context.Context, pod *corev1.Pod) error {
	errs := e.spoke.deleteCopiesOf(ctx, pod)
	for _, err := range errs {
		e.log.Info("copy of what a pod refers to is not removed", "pod", pod.Namespace+"/"+pod.Name, "err", err.Error())
	}
	return errors.Join(slices.DeleteFunc(errs, isRefused)...)
}

// releaseObjects lets go of what a pod used that does not run any more. The copies go before
// the hub hears that the pod is gone: a process that comes after this one would not
// know of them. The error is of what may yet be removed.
func (e *Engine) releaseObjects(ctx context.Context, en *podState, w *desiredPod) error {
	e.mu.Lock()
	if en.desired != w {
		e.mu.Unlock()
		return nil
	}
	en.finished = w
	unused := e.updateReferences(en)
	for _, key := range w.refs {
		// Of an attempt before this one.
		if o := e.objects[key]; o != nil && o.mayExist && len(o.users) == 0 && !slices.Contains(unused, key) {
			unused = append(unused, key)
		}
	}
	e.mu.Unlock()
	var errs []error
	for _, key := range unused {
		// What fails is in the queue, too, which may have been first: then nothing is known
		// of the object any more.
		if err := e.syncCopy(ctx, key); err != nil && !isRefused(err) && !errors.Is(err, errObjectUnknown) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
