// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"errors"
	"net/http"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// refusedMessage begins every line about a request that was not let through:
// who asked for what, of which cluster, and how it was decided. What is let
// through is for the audit logs of the hub and of the cluster, which share its
// audit id.
const refusedMessage = "Refused a request"

// logRefusals has every decision of an authorizer but to allow written down,
// an error included. The chain and the handlers ask no other.
func logRefusals(next authorizer.Authorizer, l logr.Logger) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		decision, reason, err := next.Authorize(ctx, a)
		if decision == authorizer.DecisionAllow && err == nil {
			return decision, reason, nil
		}
		if err != nil {
			reason = err.Error()
		}
		l.Info(refusedMessage, "user", userName(a.GetUser()), "verb", a.GetVerb(), "path", a.GetPath(),
			"cluster", requestedCluster(a), "decision", decision.String(), "why", reason, "auditID", auditID(ctx))
		return decision, reason, err
	})
}

// requestedCluster is the cluster that a request is about, if it is about one.
func requestedCluster(a authorizer.Attributes) string {
	switch a.GetResource() {
	case clustersResource:
		return a.GetName()
	case viewWorksResource:
		return a.GetNamespace()
	default:
		return ""
	}
}

func userName(u user.Info) string {
	if u == nil {
		return ""
	}
	return u.GetName()
}

func auditID(ctx context.Context) string {
	id, _ := audit.AuditIDFrom(ctx)
	return string(id)
}

// logRefusal writes down that a request was refused before its cluster was
// asked. That a cluster could not be asked is no refusal, and logged at level 1
// only.
func logRefusal(l logr.Logger, r *http.Request, err error) {
	if code := statusCode(err); code != http.StatusBadRequest && code != http.StatusUnauthorized && code != http.StatusForbidden {
		l = l.V(1)
	}
	ctx := r.Context()
	u, _ := request.UserFrom(ctx)
	verb, cluster := r.Method, ""
	if info, ok := request.RequestInfoFrom(ctx); ok {
		verb, cluster = info.Verb, info.Name
	}
	l.Info(refusedMessage, "user", userName(u), "verb", verb, "path", r.URL.Path,
		"cluster", cluster, "decision", authorizer.DecisionDeny.String(), "why", err.Error(), "auditID", auditID(ctx))
}

// statusCode is the status code of an error; one without is the server's own fault.
func statusCode(err error) int32 {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) {
		return status.Status().Code
	}
	return http.StatusInternalServerError
}
