package org.tensorflow.lite;

/** As TensorFlow Lite declares it: for compiling where its archive is absent. An app takes the archive's own. */
public interface Delegate {
  long getNativeHandle();
}
