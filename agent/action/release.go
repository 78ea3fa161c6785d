// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package action

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/spokelet/spokelet/agent/helm"
	"github.com/spokelet/spokelet/agent/helm/message"
	"github.com/spokelet/spokelet/agent/refusals"
	"github.com/spokelet/spokelet/api/mcm/v1alpha1"
	"github.com/spokelet/spokelet/api/wire"
)

// verbs are those of Helm.
var verbs = map[wire.Verb]message.Verb{
	wire.VerbCreate: message.Install, wire.VerbUpdate: message.Upgrade, wire.VerbDelete: message.Uninstall,
}

// executeRelease executes an action of Helm. After an error it is to be retried.
//
// The entry is created before the first request that may change something: until then a chart
// is read and rendered, which is repeated after an interruption.
func (e *Engine) executeRelease(ctx context.Context, r *request) (wire.ActionResult, error) {
	known, err := e.log.getEntry(ctx, *r)
	if err != nil {
		return wire.ActionResult{}, err
	}
	if known == nil {
		known = &logEntry{Verb: r.action.Verb, Namespace: r.action.Release.Namespace, Name: r.action.Release.Name}
		return e.runRelease(ctx, r, known)
	}
	if known.Ended != nil {
		return releaseResult(r, known.Release, known.Refusal), nil
	}
	switch progress := e.log.progress(known); {
	case progress.concluded:
		return e.recordRelease(ctx, r, known, nil, progress.refusal)
	case progress.performed:
		return e.recoverRelease(ctx, r, known, nil)
	default:
		return e.runRelease(ctx, r, known)
	}
}

// runRelease runs Helm.
func (e *Engine) runRelease(ctx context.Context, r *request, known *logEntry) (wire.ActionResult, error) {
	begun := false
	progress := e.newProgressReporter(r)
	defer progress.stop()
	answer, err := e.cfg.Releases.Run(ctx, r.action.Requester, r.helmRequest(verbs[r.action.Verb]), helm.Events{
		BeforeChange: func(ctx context.Context) error {
			if err := e.beginRelease(ctx, r, known); err != nil {
				return err
			}
			begun = true
			return nil
		},
		Progress: progress.report,
	})
	switch {
	case begun:
		return e.finishReleaseRun(ctx, r, known, answer, err)
	case err != nil || answer.Failure != nil:
		refusal := e.refuseRelease(r, answer.Failure, err)
		if refusal == nil {
			return wire.ActionResult{}, failureError(answer.Failure, err)
		}
		return wire.ActionResult{Refusal: refusal}, nil
	default: // nothing had to be changed
		return releaseResult(r, answer.Release, nil), nil
	}
}

// beginRelease records that the release may be changed from now on.
func (e *Engine) beginRelease(ctx context.Context, r *request, known *logEntry) error {
	if known.stored == nil {
		return e.log.createEntry(ctx, *r, known)
	}
	e.log.setPerformed(known)
	return nil
}

// finishReleaseRun records the outcome of a run that has changed something. If it is not known, it
// is determined by recoverRelease.
func (e *Engine) finishReleaseRun(ctx context.Context, r *request, known *logEntry, answer message.Answer, err error) (wire.ActionResult, error) {
	switch failure := answer.Failure; {
	case ctx.Err() != nil:
		return wire.ActionResult{}, ctx.Err()
	case err != nil:
		return e.recoverRelease(ctx, r, known, err)
	case failure == nil:
		return e.recordRelease(ctx, r, known, answer.Release, nil)
	case failure.Cause == message.Unavailable, failure.Cause == message.Limit:
		return e.recoverRelease(ctx, r, known, failureError(failure, nil))
	default:
		return e.recordRelease(ctx, r, known, nil, refusalOfFailure(failure))
	}
}

// recoverRelease determines the outcome of an interrupted action. Because is the cause of the
// interruption, if this process knows it.
func (e *Engine) recoverRelease(ctx context.Context, r *request, known *logEntry, because error) (wire.ActionResult, error) {
	progress := e.newProgressReporter(r)
	defer progress.stop()
	answer, err := e.cfg.Releases.Run(ctx, r.action.Requester, r.helmRequest(message.Recover), helm.Events{
		BeforeChange: func(context.Context) error { return nil },
		Progress:     progress.report,
	})
	if err == nil && answer.Failure == nil {
		return e.recordRelease(ctx, r, known, answer.Release, nil)
	}
	if ctx.Err() != nil || err == nil && answer.Failure.Cause == message.Unavailable && !e.triesExhausted(*r) {
		return wire.ActionResult{}, failureError(answer.Failure, err)
	}
	refusal := refusalOfFailure(answer.Failure)
	if err != nil {
		refusal = wire.Refuse(wire.CauseUnknown, "", fmt.Sprintf("%s: %s", errUnknown, err))
	}
	if because != nil {
		refusal = wire.Refuse(refusal.Cause, refusal.Status, fmt.Sprintf("%s: %s", because, refusal.Message))
	}
	return e.recordRelease(ctx, r, known, nil, refusal)
}

func (e *Engine) recordRelease(ctx context.Context, r *request, known *logEntry, released *message.Release, refusal *wire.Refusal) (wire.ActionResult, error) {
	if released != nil {
		kept := *released
		kept.Manifest, kept.Description = message.Masked, truncate(kept.Description)
		known.Release = &kept
	}
	if err := e.log.finishEntry(ctx, known, refusal); err != nil {
		return wire.ActionResult{}, err
	}
	return releaseResult(r, released, refusal), nil
}

// refuseRelease returns why nothing was changed; nil if that may be retried.
func (e *Engine) refuseRelease(r *request, failure *message.Failure, err error) *wire.Refusal {
	var access *refusals.AccessError
	switch {
	case errors.As(err, &access):
		return wire.Refuse(wire.CauseRequest, metav1.StatusReasonForbidden, err.Error())
	case errors.Is(err, helm.ErrNotEnabled):
		return wire.Refuse(wire.CauseTarget, "", err.Error())
	case errors.Is(err, helm.ErrEnded):
		return wire.Refuse(wire.CauseLimit, "", err.Error())
	case err != nil:
		return nil
	case failure.Cause == message.Unavailable && !e.triesExhausted(*r):
		return nil
	default:
		return refusalOfFailure(failure)
	}
}

func failureError(failure *message.Failure, err error) error {
	if err != nil {
		return err
	}
	return errors.New(failure.Message)
}

// wireCauses converts the causes of Helm's failures.
var wireCauses = map[message.Cause]wire.Cause{
	message.Invalid: wire.CauseTarget, message.Refused: wire.CauseRequest, message.Limit: wire.CauseLimit,
	message.Unavailable: wire.CauseRequest, message.Unknown: wire.CauseUnknown,
}

// refusalOfFailure returns nil for none.
func refusalOfFailure(failure *message.Failure) *wire.Refusal {
	if failure == nil {
		return nil
	}
	cause, known := wireCauses[failure.Cause]
	if !known {
		cause = wire.CauseUnknown
	}
	return wire.Refuse(cause, metav1.StatusReason(failure.Reason), failure.Message)
}

// helmRequest returns the request for the process of Helm.
func (r request) helmRequest(verb message.Verb) message.Request {
	a := r.action.Release
	return message.Request{
		Verb: verb, OriginalVerb: verbs[r.action.Verb], Name: a.Name, Namespace: a.Namespace,
		Chart:  message.Chart{URL: a.ChartURL, Name: a.ChartName, Version: a.Version, InsecureSkipVerify: a.InsecureSkipVerify},
		Values: a.Values, ValuesURL: a.ValuesURL, Wait: a.Wait, Timeout: time.Duration(a.Timeout) * time.Second,
		ActionLabel: r.uid + "." + strconv.FormatInt(r.generation, 10), // a slash is in no label value
		Manifest:    r.action.Secrets == wire.SecretsShown,
	}
}

// maxDescription bounds the description of a release in an entry, in bytes.
const maxDescription = 4 << 10

func truncate(text string) string {
	if len(text) <= maxDescription {
		return text
	}
	return strings.ToValidUTF8(text[:maxDescription], "") + "..."
}

// releaseResult returns what is sent to the hub, without a manifest that does not fit.
func releaseResult(r *request, released *message.Release, refusal *wire.Refusal) wire.ActionResult {
	if refusal != nil || released == nil {
		return wire.ActionResult{Refusal: refusal}
	}
	raw, err := encodeRelease(released)
	if err == nil && len(raw) > r.action.MaxBytes {
		short := *released
		short.Manifest, short.Description = message.Omitted, truncate(short.Description)
		raw, err = encodeRelease(&short)
	}
	if err != nil || len(raw) > r.action.MaxBytes {
		return wire.ActionResult{Omitted: true}
	}
	return wire.ActionResult{Result: raw}
}

// encodeRelease encodes the HelmRelease of a release.
func encodeRelease(released *message.Release) ([]byte, error) {
	return json.Marshal(v1alpha1.HelmRelease{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.HelmReleaseKind},
		Metadata: v1alpha1.HelmReleaseMetadata{Name: released.Name, Namespace: released.Namespace},
		Spec: v1alpha1.HelmReleaseSpec{
			ReleaseName: released.Name, Namespace: released.Namespace, Version: int32(released.Revision), //nolint:gosec // a revision is small
			Status: released.Status, Description: released.Description, ChartName: released.ChartName, ChartVersion: released.ChartVersion,
			FirstDeployed: metav1.NewTime(released.FirstDeployed), LastDeployed: metav1.NewTime(released.LastDeployed), Manifest: released.Manifest,
		},
	})
}
