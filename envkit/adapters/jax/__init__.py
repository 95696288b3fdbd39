"""What `FunctionalEnvironment` is made of: the compiled functions, trees and specs."""
