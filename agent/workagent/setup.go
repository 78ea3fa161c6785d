// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package workagent

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/spokelet/spokelet/api/crds"
)

// maxBackoff between attempts at something without which nothing goes on.
const maxBackoff = 15 * time.Second

// requiredCRDs are those of the anchors that a configuration needs.
func requiredCRDs(cfg Config) crds.Set {
	all := crds.Agent()
	if cfg.WorkNamespace != "" {
		return all
	}
	return slices.DeleteFunc(all, func(file string) bool { return strings.Contains(file, "multicluster") })
}

// installCRDs puts the definitions of anchors in place, and waits for an API server
// that does not answer. One that does not let us is supposed to have them: OCM's
// operator installs its own.
func installCRDs(ctx context.Context, client dynamic.Interface, set crds.Set, log logr.Logger) {
	for pause := time.Second; ctx.Err() == nil; pause = min(2*pause, maxBackoff) {
		err := crds.Install(ctx, client, set)
		switch {
		case err == nil || ctx.Err() != nil:
			return
		case apierrors.IsForbidden(err):
			log.Info("definitions are taken as they are: this agent may not install them", "err", err.Error())
			return
		}
		log.Error(err, "definitions cannot be installed; trying again")
		sleepJittered(ctx, pause)
	}
}

// sleepJittered sleeps between half of a pause and all of it.
func sleepJittered(ctx context.Context, pause time.Duration) {
	sleep(ctx, pause/2+rand.N(pause/2)) //nolint:gosec // spreads load, guards nothing
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// denialRecheckDelay is after how long a denial is asked about again: an API server may judge
// by the rights from before a grant that was made with the agent.
const denialRecheckDelay = 2 * time.Second

// findCopyNamespace returns where the copy of the works is kept: the agent's namespace,
// if it may write Secrets there, and nothing otherwise. OCM's operator grants that
// only where it also grants everything.
func findCopyNamespace(ctx context.Context, client kubernetes.Interface, namespace string, log logr.Logger) string {
	denied := findDeniedVerb(ctx, client, namespace, log)
	if denied != "" {
		sleep(ctx, denialRecheckDelay)
		denied = findDeniedVerb(ctx, client, namespace, log)
	}
	if denied != "" {
		log.Info("no copy of the works is kept: Secrets of the agent's namespace cannot be written", "namespace", namespace, "denied", denied)
		return ""
	}
	if _, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		log.Info("no copy of the works is kept: the agent's namespace does not exist", "namespace", namespace)
		return ""
	}
	return namespace
}

// findDeniedVerb is the first that the agent may not do to Secrets of a namespace, empty for
// none. An API server that does not answer is waited for: that is no denial.
func findDeniedVerb(ctx context.Context, client kubernetes.Interface, namespace string, log logr.Logger) string {
	for _, verb := range []string{"list", "create", "patch", "delete"} {
		for pause := time.Second; ; pause = min(2*pause, maxBackoff) {
			answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
				Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
					Verb: verb, Resource: "secrets", Namespace: namespace,
				}},
			}, metav1.CreateOptions{})
			if err == nil && answer.Status.Allowed {
				break
			}
			if err == nil || apierrors.IsForbidden(err) || ctx.Err() != nil {
				return verb
			}
			log.Error(err, "rights on Secrets cannot be found out; trying again")
			sleepJittered(ctx, pause)
		}
	}
	return ""
}
