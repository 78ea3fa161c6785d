// Copyright The Spokelet Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WorkerRelease is one version of a script: its code, its secrets and how workerd runs it.
// The operator makes them of WorkerDeployments; one that is made by hand is served if no
// WorkerDeployment has its script.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced
// +kubebuilder:printcolumn:name="Script",type="string",JSONPath=".spec.scriptName"
// +kubebuilder:printcolumn:name="Date",type="string",JSONPath=".spec.compatibilityDate"
// +kubebuilder:printcolumn:name="Revision",type="integer",JSONPath=".status.revision"
// +kubebuilder:printcolumn:name="Accepted",type="string",JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Reason",type="string",JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`,priority=1
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp"
type WorkerRelease struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec cannot be changed.
	Spec WorkerReleaseSpec `json:"spec"`
	// Status is written by the operator.
	//
	// +optional
	Status WorkerReleaseStatus `json:"status,omitempty"`
}

// WorkerReleaseList is a list of WorkerReleases.
//
// +kubebuilder:object:root=true
type WorkerReleaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []WorkerRelease `json:"items"`
}

// WorkerReleaseSpec is what workerd runs.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a release cannot be changed: create another one"
type WorkerReleaseSpec struct {
	Script `json:",inline"`

	// Modules are the objects that were stored at scriptUrls when the release was made. A
	// release without them gets what is stored there when it is first seen.
	//
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=200
	// +optional
	Modules []Module `json:"modules,omitempty"`
}

// Script says what is run, and how.
type Script struct {
	// ScriptName names the script in its account: it is the path under which it is served
	// and, in upper case, the prefix of its environment.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=54
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$`
	ScriptName string `json:"scriptName"`
	// SecretRef names a Secret of the namespace with the label workers.spokelet.io/script, whose
	// value is scriptName. Each of its keys is a secret binding.
	//
	// +kubebuilder:validation:MaxLength=253
	// +optional
	SecretRef string `json:"secretRef,omitempty"`
	// CompatibilityDate of workerd, as in 2026-01-15 or 01/15/2026.
	//
	// +kubebuilder:validation:MaxLength=32
	CompatibilityDate string `json:"compatibilityDate"`
	// CompatibilityFlags of workerd.
	//
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=128
	// +optional
	CompatibilityFlags []string `json:"compatibilityFlags,omitempty"`
	// ScriptURLs name what is stored for the account in the object store, objects or
	// prefixes: as s3://bucket/account/script/version or as account/script/version.
	//
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=1024
	// +optional
	ScriptURLs []string `json:"scriptUrls,omitempty"`
	// ScriptsURLs is another spelling of scriptUrls. Both are read, scriptUrls first.
	//
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=1024
	// +optional
	ScriptsURLs []string `json:"scriptsUrls,omitempty"`
	// MainModule names the module that handles events. Default: the only JavaScript
	// module, or else index.js, index.mjs, worker.js, worker.mjs, main.js or main.mjs.
	//
	// +kubebuilder:validation:MaxLength=512
	// +optional
	MainModule string `json:"mainModule,omitempty"`
	// BodyPart names the script if it is one in the format of service workers, which imports
	// nothing: all other modules are the values of bindings. There is no mainModule then.
	//
	// +kubebuilder:validation:MaxLength=512
	// +optional
	BodyPart string `json:"bodyPart,omitempty"`
	// ModuleTypes are the types of those modules whose extensions are of other ones.
	//
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=200
	// +optional
	ModuleTypes []ModuleType `json:"moduleTypes,omitempty"`
	// Bindings are what the script finds in its environment, besides its secrets.
	//
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=128
	// +optional
	Bindings []Binding `json:"bindings,omitempty"`
}

// Media types of modules, as in Cloudflare's API.
const (
	TypeESModule = "application/javascript+module"
	TypeCommonJS = "application/javascript"
	TypeWasm     = "application/wasm"
	TypeText     = "text/plain"
	TypeJSON     = "application/json"
	TypeData     = "application/octet-stream"
)

// ModuleType is the media type of a module.
type ModuleType struct {
	// Name of the module.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	Name string `json:"name"`
	// Type is application/javascript+module, application/javascript (CommonJS),
	// application/wasm, text/plain, application/json or application/octet-stream.
	//
	// +kubebuilder:validation:MaxLength=64
	Type string `json:"type"`
}

// Binding types, named as in Cloudflare's API.
const (
	BindingPlainText  = "plain_text"
	BindingJSON       = "json"
	BindingSecretText = "secret_text"
	BindingWasmModule = "wasm_module"
	BindingTextBlob   = "text_blob"
	BindingDataBlob   = "data_blob"
)

// Binding is one name in the environment of a script.
type Binding struct {
	// Name is a JavaScript identifier.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`
	// Type is plain_text, json, secret_text, text_blob or data_blob, or wasm_module in the
	// format of service workers; modules import WebAssembly. Another one is an error in the
	// status, which names it.
	//
	// +kubebuilder:validation:MaxLength=64
	Type string `json:"type"`
	// Text is the value of plain_text.
	//
	// +kubebuilder:validation:MaxLength=65536
	// +optional
	Text string `json:"text,omitempty"`
	// JSON is the value of json.
	//
	// +optional
	JSON *apiextensionsv1.JSON `json:"json,omitempty"`
	// Part names the module that is the value of text_blob, data_blob and wasm_module.
	//
	// +kubebuilder:validation:MaxLength=512
	// +optional
	Part string `json:"part,omitempty"`
	// Key is that of the Secret, for secret_text. Default: the name.
	//
	// +kubebuilder:validation:MaxLength=253
	// +optional
	Key string `json:"key,omitempty"`
}

// Module is one stored object.
type Module struct {
	// Name is that of the module, relative to the prefix that it is stored under.
	//
	// +kubebuilder:validation:MaxLength=512
	Name string `json:"name"`
	// Key of the object in the store.
	//
	// +kubebuilder:validation:MaxLength=1024
	Key string `json:"key"`
	// ETag of the object: another content has another one.
	//
	// +kubebuilder:validation:MaxLength=128
	ETag string `json:"etag"`
	// Size in bytes.
	Size int64 `json:"size"`
}

// WorkerReleaseStatus is what became of a release.
type WorkerReleaseStatus struct {
	// ObservedGeneration is the generation that the status is of.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Revision counts the releases of a WorkerDeployment. A release that becomes current
	// again gets a new one.
	//
	// +optional
	Revision int64 `json:"revision,omitempty"`
	// Modules are those of a release whose spec has none.
	//
	// +listType=map
	// +listMapKey=name
	// +optional
	Modules []Module `json:"modules,omitempty"`
	// SecretKeys are the keys of the release's own copy of the Secret.
	//
	// +listType=set
	// +optional
	SecretKeys []string `json:"secretKeys,omitempty"`
	// Conditions: Accepted, which is False with the reason Rejected when workerd rejects
	// the script.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
