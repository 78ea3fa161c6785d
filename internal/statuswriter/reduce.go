// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package statuswriter

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/internal/workconvert"
)

const (
	// maxCause bounds what is repeated of an answer of the API server: it may hold the
	// value that it refuses.
	maxCause = 1000
	// maxConditionMessage is the bound of metav1.Condition, in bytes.
	maxConditionMessage = 32768
	// feedbackFailed is OCM's reason of StatusFeedbackSynced, feedbackFailure what its
	// message begins with.
	feedbackFailed  = "StatusFeedbackSyncFailed"
	feedbackFailure = "Sync status feedback failed with error "
)

// feedbackField is where a ManifestWork has a value of the feedback of a manifest.
var feedbackField = regexp.MustCompile(`^status\.resourceStatus\.manifests\[(\d+)\]\.statusFeedback\.values\[(\d+)\]`)

// IsRefused tells that the API server judged what was written and would judge it so
// again: the same is not to be sent once more.
func IsRefused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// Reduce returns what is to be written in place of a report that was refused. First the
// values of feedback that the API server names go, each said in StatusFeedbackSynced of
// its manifest; then all manifests, which OmitReason says. It returns false where nothing
// is left to try.
func (r *Report) Reduce(err error) (rest Report, ok bool) {
	if !IsRefused(err) || len(r.Status.Manifests) == 0 || r.OmitReason != "" {
		return *r, false
	}
	if refused := refusedValues(err); len(refused) > 0 && !r.valuesOmitted {
		if rest, ok = r.withoutValues(refused); ok {
			return rest, true
		}
	}
	rest = *r
	rest.OmitReason = fmt.Sprintf("%.*s", maxCause, err.Error())
	return rest, true
}

// refusedValues are the values that the API server names, as what it says of each, by
// manifest and by place.
func refusedValues(err error) map[int]map[int]string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	out := map[int]map[int]string{}
	for _, cause := range status.Status().Details.Causes {
		at := feedbackField.FindStringSubmatch(cause.Field)
		if at == nil {
			continue
		}
		manifest, bad := strconv.Atoi(at[1])
		value, worse := strconv.Atoi(at[2])
		if bad != nil || worse != nil {
			continue
		}
		if out[manifest] == nil {
			out[manifest] = map[int]string{}
		}
		out[manifest][value] = cause.Message
	}
	return out
}

// withoutValues leaves values out. The places are those of what was written: where the
// size of the work had manifests left out of that they are others, and the API server
// refuses what is left, too.
func (r *Report) withoutValues(refused map[int]map[int]string) (rest Report, ok bool) {
	rest = *r
	rest.Status.Manifests = slices.Clone(r.Status.Manifests)
	rest.valuesOmitted = true
	for i := range rest.Status.Manifests {
		m := &rest.Status.Manifests[i]
		var left []workv1.FeedbackValue
		for j, v := range m.StatusFeedbacks.Values {
			why, is := refused[i][j]
			if !is {
				left = append(left, v)
				continue
			}
			m.Conditions = withFailedValue(m.Conditions, v.Name, why)
			ok = true
		}
		m.StatusFeedbacks.Values = left
	}
	return rest, ok
}

// withFailedValue returns conditions that say that a value is refused, beside what they
// said of others.
func withFailedValue(conditions []metav1.Condition, name, why string) []metav1.Condition {
	conditions = slices.Clone(conditions)
	synced := metav1.Condition{Type: workconvert.TypeFeedbackSynced}
	if old := meta.FindStatusCondition(conditions, workconvert.TypeFeedbackSynced); old != nil {
		synced = *old
	}
	message := fmt.Sprintf("value %.64q is refused by the hub: %.*s", name, maxCause, why)
	if synced.Status == metav1.ConditionFalse {
		message = synced.Message + "; " + message
	} else {
		message = feedbackFailure + message
	}
	synced.Status, synced.Reason = metav1.ConditionFalse, feedbackFailed
	if len(message) <= maxConditionMessage {
		synced.Message = message
	}
	meta.SetStatusCondition(&conditions, synced)
	return conditions
}
