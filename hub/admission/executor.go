// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	workv1 "open-cluster-management.io/api/work/v1"

	"github.com/spokelet/spokelet/internal/rbacwatch"
)

// defaultExecutor is whom a work without executor is checked for, if at all: an
// account of no namespace, as Open Cluster Management has it.
const defaultExecutor = "klusterlet-work-sa"

// checkExecutor asks whether the user may have works executed as the account.
func (j *validator) checkExecutor(ctx context.Context, r *reviewRequest, executor *workv1.ManifestWorkExecutor) error {
	if executor == nil && !j.nilExecutor {
		return nil
	}
	account := &workv1.ManifestWorkSubjectServiceAccount{Name: defaultExecutor}
	if executor != nil {
		if err := validateExecutor(executor); err != nil {
			return err
		}
		account = executor.Subject.ServiceAccount
	}
	may, err := rbacwatch.IsAllowed(ctx, j.access, r.UserInfo, authorizationv1.ResourceAttributes{
		Group: workv1.GroupName, Resource: "manifestworks", Verb: "execute-as", Namespace: r.Namespace,
		Name: "system:serviceaccount:" + account.Namespace + ":" + account.Name,
	})
	if err != nil {
		return fmt.Errorf("%w: whether user %s may execute as %s/%s: %w", errInternal, r.UserInfo.Username, account.Namespace, account.Name, err)
	}
	if !may {
		return fmt.Errorf("user %s cannot manipulate the Manifestwork with executor %s/%s in namespace %s",
			r.UserInfo.Username, account.Namespace, account.Name, r.Namespace)
	}
	return nil
}

// validateExecutor refuses an executor whose name could be read as another's.
func validateExecutor(executor *workv1.ManifestWorkExecutor) error {
	account := executor.Subject.ServiceAccount
	if account == nil {
		return errors.New("executor service account can not be nil")
	}
	if executor.Subject.Type != workv1.ExecutorSubjectTypeServiceAccount {
		return fmt.Errorf("executor type %q is not supported", executor.Subject.Type)
	}
	for _, part := range []string{account.Namespace, account.Name} {
		if part == "" || strings.Contains(part, ":") {
			return fmt.Errorf("executor service account %q/%q is not a valid one", account.Namespace, account.Name)
		}
	}
	return nil
}
