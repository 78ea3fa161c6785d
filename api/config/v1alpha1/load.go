// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// APIVersion is the group and version of every file of this package.
const APIVersion = "config.spokelet.io/v1alpha1"

// ParseHub decodes, defaults and validates a HubConfiguration, YAML or JSON.
// Unknown and duplicate fields are errors. Overrides, such as flags, are
// applied to the decoded file before it is defaulted.
func ParseHub(data []byte, overrides ...func(*HubConfiguration)) (*HubConfiguration, error) {
	c := &HubConfiguration{}
	if err := decode(data, "HubConfiguration", c, &c.TypeMeta); err != nil {
		return nil, err
	}
	for _, override := range overrides {
		override(c)
	}
	c.Default()
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("hub configuration: %w", err)
	}
	return c, nil
}

// ParseAgent decodes, defaults and validates an AgentConfiguration, YAML or
// JSON. Unknown and duplicate fields are errors.
func ParseAgent(data []byte) (*AgentConfiguration, error) {
	c := &AgentConfiguration{}
	if err := decode(data, "AgentConfiguration", c, &c.TypeMeta); err != nil {
		return nil, err
	}
	c.Default()
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("agent configuration: %w", err)
	}
	return c, nil
}

func decode(data []byte, kind string, into any, meta *metav1.TypeMeta) error {
	if err := yaml.UnmarshalStrict(data, into); err != nil {
		return fmt.Errorf("%s: cannot decode: %w", kind, err)
	}
	if meta.APIVersion != APIVersion || meta.Kind != kind {
		return fmt.Errorf("%s: is %q %q, want %q %q", kind, meta.APIVersion, meta.Kind, APIVersion, kind)
	}
	return nil
}
