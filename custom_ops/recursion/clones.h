// One library serves all x86-64 machines: a loop so marked is compiled for three levels of vector units, and the dynamic
// loader picks. Elsewhere, and with other compilers, there is one version.
#ifndef TF_EXT_CUSTOM_OPS_RECURSION_CLONES_H_
#define TF_EXT_CUSTOM_OPS_RECURSION_CLONES_H_

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define TF_EXT_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define TF_EXT_CLONES
#endif

#endif  // TF_EXT_CUSTOM_OPS_RECURSION_CLONES_H_
