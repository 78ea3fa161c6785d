// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/spokelet/spokelet/agent/refusals"
	"github.com/spokelet/spokelet/agent/secret"
	"github.com/spokelet/spokelet/api/wire"
	"github.com/spokelet/spokelet/internal/watcher"
)

// feed lists and watches the objects of a view.
type feed struct {
	watcher.ListWatch
	// columns returns those of a Table once they are known; nil for other views.
	columns func() json.RawMessage
}

// resolveTarget finds the resource of a view.
func resolveTarget(spec wire.View, resources Resources) (*meta.RESTMapping, error) {
	t := spec.Target
	if spec.Secrets == wire.SecretsRefused && targetsSecrets(t) {
		return nil, errSecretsRefused
	}
	if problems := content.IsPathSegmentName(t.Namespace); len(problems) > 0 {
		return nil, fmt.Errorf("%w: namespace %q %s", errTarget, t.Namespace, strings.Join(problems, ", "))
	}
	m, err := resources.Resource(t)
	if err != nil {
		return nil, err
	}
	if spec.Secrets == wire.SecretsRefused && secret.IsSecret(m.Resource) {
		return nil, errSecretsRefused
	}
	if isNamespaced(m) && t.Name != "" && t.Namespace == "" {
		return nil, fmt.Errorf("%w: %s %q needs a namespace", errTarget, m.Resource.GroupResource(), t.Name)
	}
	return m, nil
}

func isNamespaced(m *meta.RESTMapping) bool { return m.Scope.Name() == meta.RESTScopeNameNamespace }

// newFeed returns a feed that acts as the requester of a view.
func newFeed(spec wire.View, m *meta.RESTMapping, door Door) (*feed, error) {
	config, err := door.Config(spec.Requester)
	if err != nil {
		return nil, &refusals.AccessError{Err: err}
	}
	config.WarningHandler = rest.NoWarnings{}
	if spec.Table {
		config.Wrap(requestTable)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, &refusals.AccessError{Err: fmt.Errorf("client of the cluster: %w", err)}
	}
	var objects dynamic.ResourceInterface = client.Resource(m.Resource)
	if isNamespaced(m) {
		objects = client.Resource(m.Resource).Namespace(spec.Target.Namespace)
	}
	f := &feed{
		ListWatch: watcher.NewListWatch(objects, func(o *metav1.ListOptions) { applySelectors(o, spec) }),
		columns:   func() json.RawMessage { return nil },
	}
	if spec.Table {
		return newTableFeed(f.ListWatch), nil
	}
	return f, nil
}

// applySelectors sets the selectors of a view.
func applySelectors(o *metav1.ListOptions, spec wire.View) {
	if spec.Releases {
		o.Limit = min(o.Limit, recordPage) // 0 has no limit
	}
	if spec.Target.Name != "" {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, spec.Target.Name).String()
		return
	}
	o.LabelSelector, o.FieldSelector = spec.LabelSelector, spec.FieldSelector
}
